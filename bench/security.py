"""`python -m bench.security`: what TLS and logins cost a producer, in one run, by turns.

Each turn is librdkafka writing records of one size for some seconds, to a server of its own on loopback: without anything, with a
login, with TLS and a login, with certificates. Ratios are to the anonymous, plain one of the same round.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from rich.console import Console
from tests.support.broker import serving
from tests.support.secured_listener import Listener, starting_listeners

from bench.figures import Figure, table
from holdfast.vocabulary.clock import stopwatch_ns

VALUE_BYTES = 1_000
BATCH_BYTES = 1 << 20
# name → protocol, mechanism, aim of the ratio
VARIANTS: dict[str, tuple[str, str, float | None]] = {
    "login (SCRAM-SHA-512)": ("SASL_PLAINTEXT", "SCRAM-SHA-512", 0.9),
    "login (OAUTHBEARER)": ("SASL_PLAINTEXT", "OAUTHBEARER", 0.9),
    "TLS and login": ("SASL_SSL", "SCRAM-SHA-512", None),
    "TLS and certificates": ("SSL", "", None),
}
PLAIN = "anonymous, plain"


def produced_mb_per_s(settings: dict[str, Any], topic: str, seconds: float) -> float:
    """What is acknowledged of what one producer sends for so long."""
    value, acknowledged = b"x" * VALUE_BYTES, 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    producer = Producer(
        {
            **settings,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 200_000,
            "client.id": "bench",
        }
    )
    producer.produce(topic, value)
    assert producer.flush(30) == 0  # connected, and the topic is there
    started_ns = stopwatch_ns()
    until_ns = started_ns + int(seconds * 1e9)
    while stopwatch_ns() < until_ns:
        for _ in range(500):
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(60) == 0
    return acknowledged * VALUE_BYTES / ((stopwatch_ns() - started_ns) / 1e9) / 1e6


def run(rounds: int, seconds: float) -> list[Figure]:
    """All variants, by turns."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made,
        serving(Path(made) / "plain") as broker,
        starting_listeners(_folders(Path(made))) as listener,
    ):
        settings: dict[str, dict[str, Any]] = {PLAIN: {"bootstrap.servers": broker.bootstrap}}
        for name, (protocol, mechanism, _) in VARIANTS.items():
            secured: Listener = listener(protocol)
            settings[name] = secured.librdkafka(mechanism)
        rates: dict[str, list[float]] = {name: [] for name in settings}
        for number in range(-1, rounds):
            for name, given in settings.items():
                rate = produced_mb_per_s(given, f"mine-{number + 1}", seconds if number >= 0 else 0.5)
                if number >= 0:  # the first round warms up
                    rates[name].append(rate)
    return [_figure(name, rates[name], rates[PLAIN]) for name in VARIANTS]


def _folders(root: Path) -> Callable[[str], Path]:
    def folder(name: str) -> Path:
        made = root / name
        made.mkdir()
        return made

    return folder


def _figure(name: str, ours: list[float], plain: list[float]) -> Figure:
    aim = VARIANTS[name][2]
    ratio = statistics.median(one / other for one, other in zip(ours, plain, strict=True))
    met = None if aim is None else ratio >= aim
    words = "" if aim is None else f"ratio ≥ {aim}"
    found, reference = statistics.median(ours), statistics.median(plain)
    return Figure("Kafka produce", name, "MB/s", found, reference, ratio, words, met)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each turn produces (3)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = run(args.rounds, args.seconds)
    if args.json:
        for each in figures:
            print(each.json())
    else:
        Console().print(table(figures, f"what security costs: records of {VALUE_BYTES} bytes, reference {PLAIN}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

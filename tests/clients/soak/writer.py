"""An idempotent producer as a process: `python writer.py SETTINGS`. It writes numbered records of its own keys until it
is told to end (SIGTERM), then waits for what is under way.

The one rule: a record stands in the file `acknowledged` exactly when the broker has acknowledged it. What failed, and
with it everything the producer gave up, stands in `failed`.
"""

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

FLUSH_TIMEOUT_S = 120
TURNS_PER_S = 50


def main(settings: dict[str, Any]) -> int:
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    told = {
        "bootstrap.servers": settings["bootstrap"],
        "enable.idempotence": True,
        "linger.ms": 5,
        "compression.type": settings["compression"],
        "message.timeout.ms": 0,  # it never gives up: otherwise nobody knows what became of a record
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 2,
        "error_cb": lambda error: print(error.str(), file=sys.stderr) if error.fatal() else None,
    }
    client = Producer(told)
    folder, name, keys = Path(settings["folder"]), settings["name"], settings["keys"]
    with (folder / f"{name}.acknowledged").open("wb") as acknowledged, (folder / f"{name}.failed").open("wb") as failed:

        def delivered(error: KafkaError | None, message: Message) -> None:
            value = message.value()
            assert value is not None
            (acknowledged if error is None else failed).write(value.rstrip(b".") + b"\n")

        count, pause = 0, threading.Event()
        while not ending:
            for _ in range(settings["per_s"] // TURNS_PER_S):
                key = b"%s-%02d" % (name.encode(), count % keys)
                value = (b"%s:%08d:" % (key, count // keys)).ljust(settings["size"], b".")
                send(client, settings["topic"], key, value, delivered)
                count += 1
            client.poll(0)
            pause.wait(1 / TURNS_PER_S)
        left = client.flush(FLUSH_TIMEOUT_S)
    print(json.dumps({"sent": count, "left": left}), flush=True)
    return 0


def send(client: Producer, topic: str, key: bytes, value: bytes, delivered: Any) -> None:
    while True:
        try:
            client.produce(topic, value, key, on_delivery=delivered)
        except BufferError:  # the broker is away for long: wait until it takes records again
            client.poll(0.1)
        else:
            return


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

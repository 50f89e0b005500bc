"""Walrus's scenarios by name: what each does to three nodes, and what came of it. Each has topics of its own.

The one rule: a writer sends a message until it is acknowledged, at whichever node, and only then the next one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.scenarios.nodes import ROTATION_ENTRIES, ScenarioCluster
from tests.scenarios.outcome import Outcome, judged
from tests.support.etcd_nodes import EtcdNode
from tests.support.server_process import ServeProcess, create_topic
from tests.support.text_processes import ask, put_until_ok, read_until_empty, session, state
from tests.support.waiting import until

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

TOPICS: Final = 100
WRITERS: Final = 12


def smoke(cluster: ScenarioCluster) -> Outcome:
    """30 messages, each at another node than the one before; read in the same way."""
    sent = _put(cluster.nodes, "smoke", 30)
    read = [ask(cluster.nodes[at % 3], "GET smoke").removeprefix(b"OK ").decode() for at in range(len(sent))]
    assert read == sent, read
    return judged("smoke", {"smoke": sent}, {"smoke": read + read_until_empty(cluster.nodes, "smoke")})


def rollover(cluster: ScenarioCluster) -> Outcome:
    """Messages until six segments are sealed, by all three nodes."""
    sent: list[str] = []

    def rolled() -> bool:
        sent.extend(_put(cluster.nodes, "rollover", ROTATION_ENTRIES, start=len(sent)))
        found = state(cluster.nodes[0], "rollover")
        return len(found["sealed_segments"]) >= 6 and len(set(found["segment_leaders"].values())) == 3

    until(rolled)
    found = state(cluster.nodes[1], "rollover")
    sealed = sum(found["sealed_segments"].values())
    assert sealed == found["last_sealed_entry_offset"], found
    read = read_until_empty(cluster.nodes, "rollover")
    return judged("rollover", {"rollover": sent}, {"rollover": read}, segments=len(found["sealed_segments"]))


def hundred_topics(cluster: ScenarioCluster) -> Outcome:
    """100 topics in exact order, then EMPTY."""
    topics = [f"topic-{number}" for number in range(TOPICS)]
    sent: dict[str, list[str]] = {topic: [] for topic in topics}
    for turn, node in enumerate(cluster.nodes):
        for topic in topics:
            sent[topic] += _put([node], topic, 1, start=turn)
    read = {topic: read_until_empty(cluster.nodes, topic) for topic in topics}
    assert read == sent
    return judged("hundred-topics", sent, read)


def stress(cluster: ScenarioCluster, messages: int = 40) -> Outcome:
    """Twelve writers at all nodes, four topics that rotate, and a reader for each topic at the same time."""
    topics = [f"stress-{number}" for number in range(4)]
    read: dict[str, list[str]] = {topic: [] for topic in topics}
    written = threading.Event()
    began_ms = RealClock().boot_ms()

    def follow(topic: str) -> None:
        until(lambda: _registered(cluster.nodes[0], topic))
        while not written.is_set():
            read[topic] += read_until_empty(cluster.nodes, topic)
        read[topic] += read_until_empty(cluster.nodes, topic)

    with _together([lambda topic=topic: follow(topic) for topic in topics]):  # type: ignore[misc]
        writers = [_Writer(cluster, topics[at % 4], at) for at in range(WRITERS)]
        try:
            with _together([lambda writer=writer: writer.write(messages) for writer in writers]):  # type: ignore[misc]
                pass
        finally:
            written.set()
    seconds = (RealClock().boot_ms() - began_ms) / 1000
    return judged("stress", _acknowledged(writers), read, seconds=round(seconds, 1))


def recovery(cluster: ScenarioCluster, messages: int = 50) -> Outcome:
    """All nodes ended and started again, twice."""
    sent: list[str] = []
    for turn in range(3):
        sent += _put(cluster.nodes, "recovery", messages, start=len(sent))
        if turn < 2:
            cluster.restart()
    return judged("recovery", {"recovery": sent}, {"recovery": read_until_empty(cluster.nodes, "recovery")}, faults=2)


def resilience(cluster: ScenarioCluster, faults: int = 3) -> Outcome:
    """Nodes ended and started, one after the other, during writes at all of them."""

    def break_one(fault: int) -> None:
        node = cluster.nodes[fault % 3]
        cluster.end(node)
        node.start()

    return _under_faults(cluster, "resilience", [lambda at=at: break_one(at) for at in range(faults)])  # type: ignore[misc]


def consensus(cluster: ScenarioCluster) -> Outcome:
    """Each etcd member ended in turn, the consensus's leader among them, and started again by its server, during writes."""

    def end_member(node: EtcdNode) -> None:
        before = len(node.member_pids)
        node.end_member()
        until(lambda: len(node.member_pids) > before, what="its member was started again")

    nodes = [node for node in cluster.nodes if isinstance(node, EtcdNode)]
    return _under_faults(cluster, "consensus", [lambda node=node: end_member(node) for node in nodes])  # type: ignore[misc]


def sealing(cluster: ScenarioCluster) -> Outcome:
    """Killed right after a seal: the leader that has sealed, and whoever takes over, before and after the commit that does."""
    points = ("rotation.sealed", "takeover.record-read", "takeover.committed")
    sent: dict[str, list[str]] = {}
    for point in points:
        topic = f"sealing-{point}"
        sent[topic] = _put(cluster.nodes, topic, ROTATION_ENTRIES - 2)
        cluster.failpoints.arm(point, "kill")
        with _together([lambda point=point: _restart_killed(cluster, point)]):  # type: ignore[misc]
            sent[topic] += _put(cluster.nodes, topic, 4, start=len(sent[topic]))
        sent[topic] += _put(cluster.nodes, topic, 4, start=len(sent[topic]))
        found = state(cluster.nodes[0], topic)
        assert sum(found["sealed_segments"].values()) == found["last_sealed_entry_offset"], found
    read = {topic: read_until_empty(cluster.nodes, topic) for topic in sent}
    return judged("sealing", sent, read, faults=len(points))


def _restart_killed(cluster: ScenarioCluster, point: str) -> None:
    """Start the node again that was killed there: what its WAL alone has waits for it."""
    pid = cluster.failpoints.wait_taken(point, "kill")
    dead = next(node for node in cluster.nodes if node.process.pid == pid)
    dead.process.wait()
    dead.start()


def partition(cluster: ScenarioCluster, messages: int = 20) -> Outcome:
    """The leader is cut off from the store and from the others: they go on, it refuses; then it is one of them again."""
    create_topic(cluster.nodes[0].kafka, "partition", 1, holdfast_durability="object")
    sent = _put(cluster.nodes, "partition", messages)
    number = cluster.number_of(until(lambda: state(cluster.nodes[0], "partition")["leader_node"]))
    alone, majority = cluster.nodes[number], cluster.others(number)
    clock = RealClock()
    with cluster.cut_off(number):
        began_ms = clock.boot_ms()
        sent += _put(majority, "partition", 1, start=len(sent))  # its session is over, somebody else leads
        without_leader_ms = clock.boot_ms() - began_ms
        sent += _put(majority, "partition", messages, start=len(sent))
        refused = [_refused(alone, request) for request in ("PUT partition minority:0", "GET partition")]
        assert all(refused), refused
        sent += _put(majority, "partition", messages, start=len(sent))
    sent += _put([alone], "partition", messages, start=len(sent))
    read = [each for each in read_until_empty(cluster.nodes, "partition") if not each.startswith("minority")]
    figures = {"refused": len(refused), "without_leader_ms": without_leader_ms}
    return judged("partition", {"partition": sent}, {"partition": read}, faults=1, **figures)


SCENARIOS: Final[dict[str, Callable[[ScenarioCluster], Outcome]]] = {
    "smoke": smoke,
    "rollover": rollover,
    "hundred-topics": hundred_topics,
    "stress": stress,
    "sealing": sealing,
    "partition": partition,
    "consensus": consensus,
    "resilience": resilience,
    "recovery": recovery,
}


def applicable(store: str, cluster_kills: bool) -> list[str]:
    """The scenarios that mean something on this store."""
    left_out = set()
    if store == "sqlite":  # a file: nothing leads to it that could be cut
        left_out.add("partition")
    if store != "etcd":
        left_out.add("consensus")
    if not cluster_kills:
        left_out.add("sealing")
    return [name for name in SCENARIOS if name not in left_out]


# ── writing ──


class _Writer:
    """Messages of one writer, and how long the longest took to be acknowledged."""

    def __init__(self, cluster: ScenarioCluster, topic: str, number: int) -> None:
        self._nodes = cluster.nodes[number % 3 :] + cluster.nodes[: number % 3]
        self.topic, self._name = topic, f"w{number}"
        self.acknowledged: list[str] = []
        self.longest_ms = 0

    def one(self) -> None:
        clock = RealClock()
        began_ms = clock.boot_ms()
        message = f"{self._name}:{len(self.acknowledged)}"
        put_until_ok(lambda: self._nodes, f"PUT {self.topic} {message}")
        self.longest_ms = max(self.longest_ms, clock.boot_ms() - began_ms)
        self.acknowledged.append(message)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.one()

    def write_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.one()


def _acknowledged(writers: Sequence[_Writer]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for writer in writers:
        found.setdefault(writer.topic, []).extend(writer.acknowledged)
    return found


def _under_faults(cluster: ScenarioCluster, topic: str, faults: Sequence[Callable[[], object]]) -> Outcome:
    """Three writers, and faults one after the other, each once every writer has had ten more messages acknowledged."""
    writers, stop = [_Writer(cluster, topic, at) for at in range(3)], threading.Event()

    def more() -> None:
        enough = [len(writer.acknowledged) + 10 for writer in writers]
        until(lambda: all(len(writer.acknowledged) >= at for writer, at in zip(writers, enough, strict=True)))

    with _together([lambda writer=writer: writer.write_until(stop) for writer in writers]):  # type: ignore[misc]
        try:
            for fault in faults:
                more()
                fault()
            more()
        finally:
            stop.set()
    read = read_until_empty(cluster.nodes, topic)
    longest_ms = max(writer.longest_ms for writer in writers)
    return judged(topic, _acknowledged(writers), {topic: read}, faults=len(faults), without_ack_ms=longest_ms)


def _put(nodes: Sequence[ServeProcess], topic: str, count: int, *, start: int = 0) -> list[str]:
    """Messages of one writer, each first at the node after the last one."""
    sent = []
    for number in range(start, start + count):
        at = number % len(nodes)
        put_until_ok(lambda at=at: [*nodes[at:], *nodes[:at]], f"PUT {topic} all:{number}")  # type: ignore[misc]
        sent.append(f"all:{number}")
    return sent


def _registered(node: ServeProcess, topic: str) -> bool:
    try:
        return ask(node, f"REGISTER {topic}") == b"OK"
    except (UnavailableError, OutcomeUnknownError):
        return False


def _refused(node: ServeProcess, request: str) -> bool:
    with session(node) as opened:
        return opened.ask(request.encode()).startswith(b"ERR ")


@contextmanager
def _together(calls: Sequence[Callable[[], object]]) -> Iterator[None]:
    """The calls in threads of their own during the body, and until they return. Raises what one of them raised."""
    failures: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]

"""The faults by name: what each does to a cluster, and how it is undone.

A fault is a context manager: entered when it begins, left when it is over. The one rule: whatever it broke is whole again after it,
but for what only time or a takeover heals.
"""

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin._metadata import PartitionMetadata
from tests.chaos.cluster import ChaosAgent, ChaosCluster
from tests.chaos.levels import Level
from tests.chaos.links import Link
from tests.support.server_process import admin
from tests.support.waiting import until

TOPIC: Final = "chaos"
PUBLISH_S: Final = 5.0
ALONE_S: Final = 1.0  # for which an agent is cut off before it loses its disk
Fault = Callable[[ChaosCluster, ChaosAgent], AbstractContextManager[None]]


@contextmanager
def kill(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """SIGKILL, and a start on the same disk."""
    agent.kill()
    yield
    agent.start()


@contextmanager
def stop(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """SIGTERM: everything is handed over."""
    agent.stop()
    yield
    agent.start()


@contextmanager
def freeze(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """SIGSTOP and SIGCONT."""
    agent.process.freeze()
    try:
        yield
    finally:
        agent.process.thaw()


@contextmanager
def freeze_publishing(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """SIGSTOP right before the commit that names what was uploaded: it is sent by whoever the agent is after SIGCONT."""
    step, failpoints = "publish.before-commit", agent.faults.failpoints
    failpoints.arm(step, "pause")
    try:
        until(lambda: failpoints.taken(step, "pause") is not None, within_s=PUBLISH_S)
    except AssertionError:  # it leads nothing that is published
        failpoints.disarm()
    try:
        yield
    finally:
        failpoints.disarm()
        if failpoints.taken(step, "pause") is not None:
            failpoints.resume(step, "pause")


@contextmanager
def _held(links: list[Link], *, requests: bool = True, answers: bool = True) -> Iterator[None]:
    for link in links:
        link.hold(requests=requests, answers=answers)
    try:
        yield
    finally:
        for link in links:
            link.release()
            link.cut()  # what was held has arrived late; clients that gave up connect again


@contextmanager
def cut_peers(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """No agent reaches this one, nor it any other."""
    with ExitStack() as cuts:
        cuts.enter_context(_held([agent.peers]))
        for other in cluster.agents:
            if other is not agent:
                other.peers.hold(opening=agent.name)
                cuts.callback(other.peers.release)
        yield


@contextmanager
def cut_peers_one_way(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """What other agents send does not arrive here; what this one sends does."""
    with _held([agent.peers], answers=False):
        yield


@contextmanager
def cut_store(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """It does not reach the store, for longer than its session lives."""
    with _held(agent.store):
        yield


@contextmanager
def cut_store_answers(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """The store gets its requests and it gets no answers: outcomes are unknown."""
    with _held(agent.store, requests=False):
        yield


@contextmanager
def cut_member(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Its etcd member and the others do not reach each other; it may have been their leader."""
    with cluster.store.member_cut_off(agent.name):
        yield


@contextmanager
def cut_objects(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """It does not reach object storage."""
    with _held(agent.objects):
        yield


@contextmanager
def cut_objects_answers(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Objects are stored, and it is not told so."""
    with _held(agent.objects, requests=False):
        yield


@contextmanager
def slow_down(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Object storage answers 503 to everybody."""
    links = [link for each in cluster.agents for link in each.objects]
    for link in links:
        link.slow_down(True)
        link.cut()
    try:
        yield
    finally:
        for link in links:
            link.slow_down(False)


@contextmanager
def cut_clients(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Its clients get no answers: what they sent was appended, or not."""
    with _held([agent.clients], requests=False):
        yield


@contextmanager
def store_restart(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """The store, or one of its members, is killed and started again."""
    cluster.store.restart()
    yield


@contextmanager
def store_pause(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """The store answers nobody."""
    with cluster.store.pause():
        yield


@contextmanager
def full_disk(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Its WAL can write nothing: ENOSPC."""
    agent.faults.disk_full(True)
    try:
        yield
    finally:
        agent.faults.disk_full(False)


@contextmanager
def lose_disk(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """SIGKILL, and a start on an empty disk. Only when no partition is short of copies: one disk may be lost at a time."""
    if not _is_whole(cluster):
        yield
        return
    agent.kill()
    agent.lose_disk()
    yield
    agent.start()
    _is_whole(cluster)  # before anything else is broken


@contextmanager
def lose_disk_cut_off(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """It goes on alone for a while, and then is killed and loses its disk: what it appended alone is nowhere."""
    if not _is_whole(cluster):
        yield
        return
    with cut_peers(cluster, agent):
        threading.Event().wait(ALONE_S)
        agent.kill()
        agent.lose_disk()
    yield
    agent.start()
    _is_whole(cluster)  # before anything else is broken


@contextmanager
def diverge(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """It appends a lot that nobody else has, is deposed, and returns with a full disk, which keeps it; then its successor dies.

    Whoever leads next finds two logs: a long one of an old epoch, and a short one in which more was acknowledged. Without object
    storage nothing is published meanwhile: a partition without a tail has only one log.
    """
    led = _led_by(cluster, cluster.agents, agent) if _is_whole(cluster) else []
    if not led:
        yield
        return
    others = [each for each in cluster.agents if each is not agent]
    with ExitStack() as healed, _held([link for each in cluster.agents for link in each.objects]):
        with cut_peers(cluster, agent):
            with cluster.burst():
                threading.Event().wait(ALONE_S)
            agent.process.freeze()
            healed.callback(agent.process.thaw)
            until(lambda: not _led_by(cluster, others, agent), what="others lead")
            agent.faults.disk_full(True)
            healed.callback(agent.faults.disk_full, False)
        agent.process.thaw()
        until(lambda: _is_replica_of(cluster, others, agent, led), what=f"{agent.name} is a replica again")
        threading.Event().wait(ALONE_S)  # something is acknowledged in the epoch that counts it
        successor = max(others, key=lambda each: len(set(led) & set(_led_by(cluster, others, each))))
        successor.kill()
        healed.callback(successor.start)
        agent.faults.disk_full(False)
        yield


def _partitions(cluster: ChaosCluster, asked: Sequence[ChaosAgent]) -> list[PartitionMetadata] | None:
    """The partitions as these agents know them; None: nobody answers."""
    try:
        client = admin(",".join(each.bootstrap for each in asked))
        topic = cluster.topics[0]
        found = client.list_topics(topic, timeout=10).topics[topic].partitions
    except KafkaException:
        return None
    return list(found.values())


def _led_by(cluster: ChaosCluster, asked: Sequence[ChaosAgent], agent: ChaosAgent) -> list[int]:
    """Which partitions an agent leads; all of them, as long as some have no leader."""
    found = _partitions(cluster, asked) or []
    led = [each.id for each in found if each.leader == agent.node]
    return led if found and all(each.leader >= 0 for each in found) else [-1]


def _is_replica_of(
    cluster: ChaosCluster, asked: Sequence[ChaosAgent], agent: ChaosAgent, partitions: Sequence[int]
) -> bool:
    """Whether others lead these, with the agent as a replica."""
    found = [each for each in _partitions(cluster, asked) or () if each.id in partitions]
    leaders = {each.node for each in asked}
    return bool(found) and all(agent.node in each.replicas and each.leader in leaders for each in found)


@contextmanager
def clock_jump(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """Its wall clock is an hour ahead, then an hour behind."""
    agent.faults.clock_offset_ms(3_600_000)
    threading.Event().wait(0.5)
    agent.faults.clock_offset_ms(-3_600_000)
    try:
        yield
    finally:
        agent.faults.clock_offset_ms(0)


@contextmanager
def drain(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """An operator drains it, and withdraws that."""
    _try_command(cluster, "drain", agent.name, "--wait", "0")
    yield
    _try_command(cluster, "drain", agent.name, "--undo", "--wait", "0")


@contextmanager
def transfer(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """An operator moves a partition to it, and lets the planner rebalance again."""
    _try_command(cluster, "transfer", TOPIC, "0", "--to", agent.name, "--wait", "0")
    yield
    _try_command(cluster, "rebalance", "--wait", "0")


@contextmanager
def join(cluster: ChaosCluster, agent: ChaosAgent) -> Iterator[None]:
    """A further agent joins, takes its share, and leaves again."""
    joined = cluster.join()
    yield
    joined.stop()
    cluster.agents.remove(joined)


def _try_command(cluster: ChaosCluster, *argv: str) -> None:
    with suppress(subprocess.CalledProcessError):  # refused, or the store was away: an operator would look again
        cluster.command(*argv)


def _is_whole(cluster: ChaosCluster) -> bool:
    """Whether every partition has a leader and as many copies in sync as the level promises; waits for it."""

    def whole() -> bool:
        try:
            client = admin(cluster.bootstrap)
            topics = [client.list_topics(topic, timeout=10).topics[topic] for topic in cluster.topics]
        except KafkaException:
            return False
        found = [each for topic in topics for each in topic.partitions.values()]
        return all(each.leader >= 0 and len(each.isrs) >= cluster.copies_needed for each in found)

    try:
        until(whole, pause_s=0.2)
    except AssertionError:
        return False
    return True


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill,
    "stop": stop,
    "freeze": freeze,
    "freeze-past-ttl": freeze,
    "freeze-publishing": freeze_publishing,
    "freeze-publishing-past-ttl": freeze_publishing,
    "cut-peers": cut_peers,
    "cut-peers-one-way": cut_peers_one_way,
    "cut-store": cut_store,
    "cut-store-answers": cut_store_answers,
    "cut-member": cut_member,
    "cut-objects": cut_objects,
    "cut-objects-answers": cut_objects_answers,
    "slow-down": slow_down,
    "cut-clients": cut_clients,
    "store-restart": store_restart,
    "store-pause": store_pause,
    "full-disk": full_disk,
    "lose-disk": lose_disk,
    "lose-disk-cut-off": lose_disk_cut_off,
    "diverge": diverge,
    "clock-jump": clock_jump,
    "drain": drain,
    "transfer": transfer,
    "join": join,
}


def applicable(level: Level, *, store: str, objects: str, learners: bool = True) -> list[str]:
    """The faults that mean something at this level, on this store and these objects.

    With `learners`, an agent whose disk is full becomes no replica.
    """
    left_out = set()
    if not level.survives_lost_disk:
        left_out |= {"lose-disk", "lose-disk-cut-off"}
    if level.name != "quorum" or objects == "folder" or learners:
        left_out.add("diverge")
    if store == "sqlite":  # a file, which no connection leads to
        left_out |= {"cut-store", "cut-store-answers"}
    if store == "embedded":  # a further agent would stay as a further member, and count
        left_out.add("join")
    else:
        left_out.add("cut-member")
    if objects == "folder":
        left_out |= {"cut-objects", "cut-objects-answers", "slow-down"}
    return [name for name in FAULTS if name not in left_out]

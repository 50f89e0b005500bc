"""What a peer sees of a process that is killed, and of one that stands still: the difference that early takeover rests on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.support.peers import QUICK, Answers, MemberTable, StreamNode, key, stream_node
from tests.support.waiting import WAIT_S, async_until

from holdfast.agent.peers.observations import DialOutcome
from holdfast.vocabulary.types import Member

ROOT = Path(__file__).parents[3]


@contextmanager
def peer_process(name: str, other: StreamNode) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the address where it takes streams."""
    argv = [sys.executable, "-m", "tests.support.peer_process", name, other.name, other.peers.address]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}  # noqa: TID251
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait(WAIT_S)


async def test_a_killed_process_is_a_reset_and_then_a_refusal() -> None:
    table = MemberTable()
    async with stream_node(table, "ann") as ann:
        with peer_process("bob", ann) as (process, address):
            table.put(Member(id="bob", session="s", wal_id="wal-bob", peer_address=address))
            stream = await ann.stream_to("bob")
            process.kill()
            await async_until(lambda: DialOutcome.REFUSED in ann.events.outcomes())
            reset, *later = ann.events.observations
            assert (reset.outcome, reset.established) == (DialOutcome.RESET, True)
            # The kernel closes what a dead process had one by one: an attempt may reach a port that is just being closed.
            assert {each.outcome for each in later} <= {DialOutcome.RESET, DialOutcome.REFUSED}
            assert not any(each.established for each in later)
            assert not stream.connected


async def test_a_stopped_process_is_a_time_out_and_never_more() -> None:
    table = MemberTable()
    impatient = replace(QUICK, keep_alive_ms=50, silent_ms=400, connect_ms=400)
    async with stream_node(table, "ann", settings=impatient) as ann:
        with peer_process("bob", ann) as (process, address):
            table.put(Member(id="bob", session="s", wal_id="wal-bob", peer_address=address))
            await ann.stream_to("bob")
            seen = len(ann.events.observations)  # on a busy machine it may have been slow before
            process.send_signal(signal.SIGSTOP)
            await async_until(lambda: len(ann.events.observations) >= seen + 3)
            assert set(ann.events.outcomes()[seen:]) == {DialOutcome.TIMED_OUT}
            process.send_signal(signal.SIGCONT)
            stream, answers = ann.peers.to("wal-bob"), Answers()
            assert stream is not None
            await async_until(lambda: stream.send(key(0), [b"x"], answers))
            await async_until(lambda: answers.got)

"""A process that appends to a WAL until somebody kills it: `python -m tests.support.wal_process DIR SEED [LABEL HIT]`.

It says what it was promised, one line each, as soon as it knows: `seen PARTITION END` after opening, `ack PARTITION OFFSET`,
`release PARTITION OFFSET`. With LABEL it kills itself at the HIT-th time it passes that failpoint.
"""

import asyncio
import os
import signal
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from tests.support.wal import SMALL, TOPIC, frame, opened, places

from holdfast.log.wal.frames import EPOCH_START, WalFrame
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.random import SeededRandom

# Partition 0 is released seldom: its frames are copied forward again and again.
COPYING = replace(SMALL, copy_forward_files=2)
REPLICATED = 9


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(directory: Path, seed: int, label: str, hit: int) -> None:
    passed: Counter[str] = Counter()

    def reached(name: str) -> None:
        passed[name] += 1
        if name == label and passed[name] == hit:
            os.kill(os.getpid(), signal.SIGKILL)

    if label:  # without a handler most groups are written without the interpreter
        failpoints.install(reached)
    # A WAL that is closed marks its end, unless its file is full to the last frame: then the next one does.
    turns = 6 if label == "wal.mark-synced" else 100_000
    for life in range(10):
        await append(directory, seed + life, turns, replicated=label == "wal.header-raised")


async def append(directory: Path, seed: int, turns: int, *, replicated: bool) -> None:
    rng = SeededRandom(seed).random
    ends: defaultdict[int, int] = defaultdict(int)
    async with opened(directory, seed=seed, settings=COPYING) as wal:
        async for partition, offset in places(wal):
            ends[partition] = max(ends[partition], offset + 1)
        for partition, end in ends.items():
            say("seen", partition, end)
        say("ready")
        for turn in range(turns):
            answers = []
            for _ in range(rng.randrange(1, 20)):
                partition = min(rng.randrange(30), 2) if rng.random() < 0.9 else 1
                answers.append(
                    (
                        partition,
                        ends[partition],
                        wal.append(frame(ends[partition], partition=partition, size=rng.randrange(2000))),
                    )
                )
                ends[partition] += 1
            if replicated:  # a frame of replication in every file
                start = WalFrame(TOPIC, REPLICATED, 1, ends[REPLICATED], 1, (), EPOCH_START)
                answers.append((REPLICATED, ends[REPLICATED], wal.append(start)))
                ends[REPLICATED] += 1
            for partition, offset, answer in answers:
                await answer
                say("ack", partition, offset)
            if turn % 3 == 2:
                partition = rng.randrange(3) if turn % 30 == 29 else rng.randrange(1, 3)
                say("release", partition, ends[partition])
                wal.release(TOPIC, partition, ends[partition])


if __name__ == "__main__":
    label, hit = sys.argv[3:5] if len(sys.argv) > 3 else ("", "0")
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), label, int(hit)))

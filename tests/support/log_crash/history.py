"""What the processes of one world said, line by line, and whether all of it can be true of one log.

    life AGENT                                    a process begins
    session AGENT ID                              its session
    opened AGENT PARTITION EPOCH NEXT WATERMARK   it leads a partition, from offset NEXT on
    acked AGENT PARTITION PRODUCER BATCH BASE END a producer was told that its batch is at [BASE, END)
    seen AGENT PARTITION OFFSET NAME              a reader of the leader saw a record
    watermark AGENT PARTITION OFFSET              how far readers were let
    wrong AGENT PARTITION OFFSET                  a record that nobody sent
    refused AGENT PARTITION PRODUCER BATCH WHY    a producer was told that its batch does not follow
    reading AGENT, found AGENT PARTITION OFFSET NAME, ended AGENT PARTITION WATERMARK    everything, read at the end

Other lines (died, stopped, offline, lost, late, …) are for tests to look for. The one rule: a line is written after the
fact, with one system call, so that whatever is in the history has happened, whenever the process died.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.log_crash.workload import Name, records_in


@dataclass(slots=True)
class Log:
    """What is known of one partition."""

    acked: dict[Name, int] = field(default_factory=dict)
    seen: dict[int, Name] = field(default_factory=dict)
    found: dict[int, Name] = field(default_factory=dict)
    watermark: int = 0  # the highest that anybody was let
    watermarks: dict[str, int] = field(default_factory=dict)  # of each agent in its present life
    epoch: int = 0
    ended: int | None = None


@dataclass(slots=True)
class Verdict:
    """What a history amounts to. `faults` are sentences; none means that all is well."""

    acked: int = 0
    losses: int = 0
    duplicates: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """Everything said so far."""

    lines: list[list[str]]
    logs: dict[int, Log] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "History":
        """Read the file; a line without its end was never said."""
        text = path.read_text() if path.exists() else ""
        return cls.of(line for line in text.splitlines(keepends=True) if line.endswith("\n"))

    @classmethod
    def of(cls, lines: Iterable[str]) -> "History":
        """Take lines in, and note at once what contradicts an earlier one."""
        history = cls([line.split() for line in lines if line.strip()])
        for kind, *words in history.lines:
            if kind in _TAKES:
                _TAKES[kind](history, words)
        return history

    def said(self, kind: str, *words: str) -> list[list[str]]:
        """The lines that begin so."""
        return [line for line in self.lines if line[: len(words) + 1] == [kind, *words]]

    def log(self, number: str) -> Log:
        return self.logs.setdefault(int(number), Log())

    def next_batch(self, number: int, producer: int) -> int:
        """The first batch of the producer that was not acknowledged: what it sends next, perhaps again."""
        acked = {name.batch for name in self.log(str(number)).acked if name.producer == producer}
        return next(batch for batch in range(len(acked) + 1) if batch not in acked)

    def judge(self) -> Verdict:
        """Compare what was promised with what was found at the end."""
        verdict = Verdict(faults=list(self.faults))
        for number, log in sorted(self.logs.items()):
            _judge(number, log, verdict)
        return verdict


def _judge(number: int, log: Log, verdict: Verdict) -> None:
    say, verdict.acked = verdict.faults.append, verdict.acked + len(log.acked)
    if log.ended is None:
        say(f"partition {number} was never read to its end")
        return
    for name, offset in log.acked.items():
        if log.found.get(offset) != name:
            verdict.losses += 1
            say(f"partition {number}: {name} was acknowledged at {offset}, where {log.found.get(offset)} is")
    for offset, name in log.seen.items():
        if log.found.get(offset) != name:
            say(f"partition {number}: {name} was seen at {offset}, where {log.found.get(offset)} is")
    if log.ended < log.watermark:
        say(f"partition {number} ends at {log.ended}; readers were let up to {log.watermark}")
    if log.found and max(log.found) >= log.ended:
        say(f"partition {number}: {max(log.found)} was found, beyond the watermark {log.ended}")
    _judge_order(number, log, verdict)


def _judge_order(number: int, log: Log, verdict: Verdict) -> None:
    """Each producer's records, by offset: all of them from the first on, each once, in the order they were sent."""
    following: dict[int, Name] = {}
    copies: set[Name] = set()
    for offset, name in sorted(log.found.items()):
        expected = following.get(name.producer, Name(name.producer, 0, 0))
        if name in copies:
            verdict.duplicates += 1
            verdict.faults.append(f"partition {number}: {name} is there again at {offset}")
        elif name != expected:
            verdict.faults.append(f"partition {number}: {name} is at {offset}, where {expected} should follow")
        copies.add(name)
        following[name.producer] = _after(name)


def _after(name: Name) -> Name:
    if name.record + 1 < records_in(name.producer, name.batch):
        return name._replace(record=name.record + 1)
    return Name(name.producer, name.batch + 1, 0)


def _acked(history: History, words: list[str]) -> None:
    _, number, *rest = words
    producer, batch, base, end = map(int, rest)
    log = history.log(number)
    if end - base != records_in(producer, batch):
        history.faults.append(f"partition {number}: batch {producer}/{batch} was acknowledged at [{base}, {end})")
    for index in range(records_in(producer, batch)):
        name = Name(producer, batch, index)
        if log.acked.setdefault(name, base + index) != base + index:
            history.faults.append(
                f"partition {number}: {name} was acknowledged at {log.acked[name]} and {base + index}"
            )


def _seen(history: History, words: list[str]) -> None:
    agent, number, offset, text = words
    log, name = history.log(number), Name(*map(int, text.split("/")))
    before = log.seen.setdefault(int(offset), name)
    if before != name:
        history.faults.append(f"partition {number}: {before} was seen at {offset}, and later {name}")
    if int(offset) >= log.watermarks.get(agent, 0):
        history.faults.append(f"partition {number}: {name} was seen at {offset}, beyond the watermark")


def _watermark(history: History, words: list[str]) -> None:
    agent, number, offset = words
    log = history.log(number)
    if int(offset) < log.watermarks.get(agent, 0):
        history.faults.append(f"partition {number}: the watermark went back to {offset}")
    log.watermarks[agent] = int(offset)
    log.watermark = max(log.watermark, int(offset))


def _opened(history: History, words: list[str]) -> None:
    agent, number, *rest = words
    epoch, following, watermark = map(int, rest)
    log = history.log(number)
    if epoch <= log.epoch:
        history.faults.append(f"partition {number}: epoch {epoch} began after epoch {log.epoch}")
    if watermark < log.watermark:
        history.faults.append(f"partition {number}: opened at watermark {watermark}, after {log.watermark}")
    promised = max(log.acked.values(), default=-1)
    if following <= promised:
        history.faults.append(f"partition {number}: opened at {following}, but {promised} was acknowledged")
    log.epoch, log.watermarks[agent] = epoch, watermark
    log.watermark = max(log.watermark, watermark)


def _reading(history: History, words: list[str]) -> None:
    for log in history.logs.values():
        log.found, log.ended = {}, None


def _found(history: History, words: list[str]) -> None:
    _, number, offset, text = words
    log, at = history.log(number), int(offset)
    last = next(reversed(log.found), -1)
    if at <= last:
        history.faults.append(f"partition {number}: {text} was found at {at}, after {last}")
    log.found[at] = Name(*map(int, text.split("/")))


def _ended(history: History, words: list[str]) -> None:
    history.log(words[1]).ended = int(words[2])


def _fault(history: History, words: list[str]) -> None:
    history.faults.append(f"partition {words[1]}: {' '.join(words[2:])}")


_TAKES = {
    "acked": _acked,
    "seen": _seen,
    "watermark": _watermark,
    "opened": _opened,
    "reading": _reading,
    "found": _found,
    "ended": _ended,
    "wrong": _fault,
    "refused": _fault,
    "missing": _fault,
}

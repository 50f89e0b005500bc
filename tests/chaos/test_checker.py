"""The checker: a history that cannot be true of one log is told from one that can."""

import json

import pytest
from tests.chaos.checker import Verdict, check
from tests.chaos.history import Event, parsed

Line = dict[str, object]


def line(process: str, status: str, f: str, at: int, **value: object) -> Line:
    return {"time_ms": at, "process": process, "type": status, "f": f, **value}


def sent(value: str, offset: int, at: int, *, answered: int | None = None, process: str = "p0") -> list[Line]:
    return [
        line(process, "invoke", "send", at, partition=0, value=value),
        line(process, "ok", "send", at + 1 if answered is None else answered, partition=0, value=value, offset=offset),
    ]


def read(process: str, at: int, *records: tuple[int, str, int]) -> Line:
    return line(process, "ok", "read", at, partition=0, records=[list(each) for each in records])


def end(epoch: int, end: int, at: int) -> list[Line]:
    return [
        line("observer", "invoke", "end", at, partition=0),
        line("observer", "ok", "end", at + 1, partition=0, epoch=epoch, end=end),
    ]


def lead(epoch: int, leader: int) -> Line:
    return line("observer", "ok", "lead", 5, partition=0, epoch=epoch, leader=leader)


BEGIN: list[Line] = [
    line("p0", "ok", "begin", 0, kind="idempotent"),
    line("p1", "ok", "begin", 0, kind="plain"),
    line("r0", "ok", "begin", 0, kind="reader"),
    line("r1", "ok", "begin", 0, kind="reader"),
]
SENT = [*sent("a", 0, 10), *sent("b", 1, 20), *sent("c", 2, 30)]
A, B, C = (0, "a", 1), (1, "b", 1), (2, "c", 2)
READ = [read("r0", 40, A, B), read("r0", 50, C), read("r1", 60, A, B, C)]
DONE: list[Line] = [line(reader, "ok", "done", 90, partition=0, end=3) for reader in ("r0", "r1")]


def verdict(*lines: Line) -> Verdict:
    return check(parsed(json.dumps(each) for each in lines))


def rules(*lines: Line) -> set[str]:
    return {each.rule for each in verdict(*lines).violations}


def test_a_true_history_is_clean() -> None:
    ends = [*end(1, 0, 5), *end(1, 2, 25), *end(2, 2, 26), *end(2, 3, 40)]
    clean = verdict(*BEGIN, *SENT, *READ, *DONE, *ends, lead(1, 7), lead(2, 8), lead(2, 8))
    assert clean.violations == ()
    assert (clean.acknowledged, clean.unknown, clean.refused, clean.read, clean.epochs) == (3, 0, 0, 6, 2)
    assert clean.without_ack_ms == {0: 10}


def test_an_acknowledgement_without_an_offset_is_one_and_its_record_is_where_it_is_read() -> None:
    first, unnamed = sent("a", 0, 10), sent("b", 1, 20)
    unnamed[1]["offset"] = None  # as librdkafka tells of DUPLICATE_SEQUENCE_NUMBER
    found = verdict(*BEGIN, *first, *unnamed, *sent("c", 2, 30), *READ, *DONE)
    assert (found.violations, found.acknowledged) == ((), 3)
    without = [read(reader, 40, A, C) for reader in ("r0", "r1")]
    assert "lost" in rules(*BEGIN, *first, *unnamed, *sent("c", 2, 30), *without, *DONE)


def test_what_nobody_knows_may_be_there_or_not() -> None:
    maybe = [line("p1", "invoke", "send", 12, partition=0, value=name) for name in ("x", "y")]
    answered = line("p1", "info", "send", 80, partition=0, value="x")
    there = [read("r0", 70, (3, "x", 2)), read("r1", 71, (3, "x", 2))]
    found = verdict(*BEGIN, *maybe, *SENT, answered, *READ, *there, *DONE)
    assert (found.violations, found.unknown) == ((), 2)


def test_what_comes_after_the_end_of_the_readers_need_not_be_read_by_all() -> None:
    late = line("p1", "invoke", "send", 12, partition=0, value="x")
    assert rules(*BEGIN, late, *SENT, *READ, read("r0", 70, (3, "x", 2)), *DONE) == set()
    assert rules(*BEGIN, *SENT, *sent("d", 3, 35), *READ, *DONE) == {"lost"}  # unless it was acknowledged


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([*SENT, READ[0], READ[2], *DONE], "lost"),  # c, which one reader was never given
        ([*SENT, read("r0", 40, A, B, C), *DONE], "lost"),  # everything, for the other one
        ([*SENT, *READ, DONE[0]], "unfinished"),
        ([*SENT, *READ, *sent("d", 2, 35), *DONE], "offset reassigned"),
        ([*SENT, *READ[:2], read("r1", 60, A, (1, "d", 1), C), *DONE], "offset reassigned"),
        ([*SENT, *READ, read("r0", 70, (3, "a", 2)), *DONE], "duplicate"),
        ([*SENT, *READ, read("r0", 70, (3, "z", 2)), *DONE], "phantom"),
        ([*SENT, *READ, *DONE, read("r0", 70, A)], "reordered"),
        ([*sent("b", 0, 20), *sent("a", 1, 10), *sent("c", 2, 30), *READ, *DONE], "offset reassigned"),
        ([*SENT, *READ, *DONE, *sent("d", 1, 40)], "offset went back"),
        ([*SENT, *READ, *DONE, *end(1, 2, 25), *end(1, 1, 30)], "end went back"),
        ([*SENT, *READ, *DONE, *end(1, 3, 45), *end(2, 2, 50)], "end went back"),
        ([*SENT, *READ, *DONE, *end(2, 2, 50)], "end went back"),  # c was acknowledged under epoch 2
        ([*SENT, *READ, *DONE, lead(1, 7), lead(1, 8)], "two leaders"),
        ([*SENT, *READ[:2], read("r1", 60, A, (1, "b", 2), C), *DONE], "epoch changed"),
        ([*SENT, read("r0", 40, (0, "a", 3), B, C), *DONE], "epoch went back"),
        ([*SENT, *READ, *DONE, line("r0", "fail", "refuse", 70, partition=0, error="OFFSET_OUT_OF_RANGE")], "refused"),
        ([*SENT, *READ, *DONE, *sent("a", 7, 70)], "malformed history"),
    ],
)
def test_what_cannot_be(lines: list[Line], rule: str) -> None:
    assert rule in rules(*BEGIN, *lines)


def test_a_deposed_leader_need_not_know_what_was_acknowledged_since() -> None:
    assert rules(*BEGIN, *SENT, *READ, *DONE, *end(1, 2, 50)) == set()


def test_records_of_an_idempotent_producer_that_changed_places_are_found() -> None:
    together = [line("p0", "invoke", "send", at, partition=0, value=name) for at, name in ((10, "a"), (11, "b"))]
    swapped = [line("p0", "ok", "send", 20, partition=0, value="a", offset=1)]
    swapped += [line("p0", "ok", "send", 20, partition=0, value="b", offset=0)]
    reads = [read(reader, 40, (0, "b", 1), (1, "a", 1)) for reader in ("r0", "r1")]
    assert rules(*BEGIN, *together, *swapped, *reads, *DONE) == {"reordered"}


def test_what_was_refused_for_good_must_not_be_there() -> None:
    refused = [line("p1", status, "send", 11, partition=0, value="x") for status in ("invoke", "fail")]
    there = [read(reader, 70, (3, "x", 2)) for reader in ("r0", "r1")]
    assert rules(*BEGIN, *refused, *SENT, *READ, *there, *DONE) == {"phantom"}


MEMBERS: list[Line] = [line(name, "ok", "begin", 0, kind="member", group="g") for name in ("m0", "m1")]


def assigned(member: str, at: int) -> Line:
    return line(member, "ok", "assign", at, partition=0)


def committed(member: str, offset: int, at: int) -> Line:
    return line(member, "ok", "commit", at, partition=0, offset=offset)


def test_members_of_a_group_may_read_again_what_was_not_committed() -> None:
    first = [assigned("m0", 1), read("m0", 40, A, B), committed("m0", 1, 45)]
    second = [assigned("m1", 50), read("m1", 51, B, C), committed("m1", 3, 55)]
    assert rules(*BEGIN, *MEMBERS, *SENT, *READ, *first, *second, *DONE) == set()


def test_a_commit_that_was_forgotten_is_found() -> None:
    first = [assigned("m0", 1), read("m0", 40, A, B), committed("m0", 2, 45)]
    second = [assigned("m1", 50), read("m1", 51, B, C)]
    assert rules(*BEGIN, *MEMBERS, *SENT, *READ, *first, *second, *DONE) == {"commit lost"}


def test_what_a_group_skipped_is_found() -> None:
    first = [assigned("m0", 1), read("m0", 40, A), assigned("m1", 50), read("m1", 51, C)]
    assert rules(*BEGIN, *MEMBERS, *SENT, *READ, *first, *DONE) == {"lost"}


def test_a_time_without_acknowledgements_is_measured_from_the_first_record_on() -> None:
    assert verdict(*BEGIN, *sent("a", 0, 10, answered=5_010), *sent("b", 1, 20, answered=5_020)).without_ack_ms == {
        0: 5_000
    }
    nothing = [line("p1", "invoke", "send", at, partition=0, value=str(at)) for at in (0, 700)]
    assert verdict(*nothing).without_ack_ms == {0: 700}


@pytest.mark.parametrize("damaged", ['{"time_ms": 1}', '{"time_ms": 1, "process": "p", "type": "odd", "f": "send"}'])
def test_a_line_of_nothing_known_is_refused(damaged: str) -> None:
    with pytest.raises(ValueError, match=r"no 'process'|invalid type 'odd'"):
        Event.parsed(damaged)


def test_a_plain_producer_may_repeat_itself() -> None:
    again = [*sent("x", 3, 35, process="p1"), *(read(reader, 70, (3, "x", 2), (4, "x", 2)) for reader in ("r0", "r1"))]
    found = verdict(*BEGIN, *SENT, *READ, *again, *DONE)
    assert (found.violations, found.repeated) == ((), 1)

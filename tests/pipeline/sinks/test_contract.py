"""What holds for every sink: a range that is written again, by any writer and after any failure, is stored once."""

import pytest
from tests.support.sink_destinations import SinkDestination
from tests.support.sink_values import EVERY_TYPE, again, fenced_range, plain, put, row_of_every_type, write

from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, BlockedError


def test_rows_arrive_with_their_provenance(place: SinkDestination) -> None:
    target = place.target()
    sink = place.sink(target)
    assert sink.guarantee == EXACTLY_ONCE
    put(sink, target, fenced_range(10, 13, partition=2))
    assert place.places() == [(2, 10), (2, 11), (2, 12)]
    assert sorted((row["id"], row["name"]) for row in place.rows()) == [(10, "n1"), (11, "n2"), (12, "n0")]
    assert {(row["_generation"], row["_topic"]) for row in place.rows()} == {(1, "orders")}
    sink.close()


def test_a_range_that_is_written_again_is_stored_once(place: SinkDestination) -> None:
    target, of = place.target(), fenced_range(0, 50)
    first, second = place.sink(target), place.sink(target)
    put(first, target, of, bad=(7,))
    put(second, target, again(of), bad=(7,))
    put(second, target, fenced_range(50, 60, epoch=2))
    assert place.places() == [(0, n) for n in range(60) if n != 7]
    assert [(row["_offset"], row["payload"]) for row in place.refused()] == [(7, b"\xffbad")]


def test_writes_of_a_task_that_died_do_no_harm(place: SinkDestination) -> None:
    target, of = place.target(), fenced_range(0, 50)
    dead, successor = place.sink(target), place.sink(target)
    write(dead, target, of, bad=(3,))  # and nobody commits it
    put(successor, target, again(of), bad=(3,))
    assert place.places() == [(0, n) for n in range(50) if n != 3]
    assert len(place.refused()) == 1


def test_a_zombie_that_commits_late_changes_nothing(place: SinkDestination) -> None:
    target, of = place.target(), fenced_range(0, 50)
    zombie, successor = place.sink(target), place.sink(target)
    staged = write(zombie, target, of)
    successor.fence(0, 2)
    put(successor, target, again(of))
    put(successor, target, fenced_range(50, 80, epoch=2))
    zombie.commit([staged])
    assert place.places() == [(0, n) for n in range(80)]


def test_a_successor_finds_what_its_predecessor_committed(place: SinkDestination) -> None:
    target, of = place.target(), fenced_range(0, 50)
    first = place.sink(target)
    put(first, target, of)
    second = place.sink(target)
    second.fence(0, 2)
    restaged = write(second, target, again(of))
    second.commit([restaged])
    second.commit([restaged])
    assert place.places() == [(0, n) for n in range(50)]


def test_partitions_are_committed_together_and_known_apart(place: SinkDestination) -> None:
    target = place.target()
    sink = place.sink(target)
    put(sink, target, fenced_range(0, 5, partition=1))
    both = [write(sink, target, fenced_range(0, 5, partition=1)), write(sink, target, fenced_range(0, 5, partition=2))]
    sink.commit(both)
    assert place.places() == [(number, offset) for number in (1, 2) for offset in range(5)]


def test_generations_and_pipelines_are_independent(place: SinkDestination) -> None:
    one, other = place.target(pipeline_id="p1"), place.target(pipeline_id="p2")
    put(place.sink(one), one, fenced_range(0, 5))
    put(place.sink(other), other, fenced_range(0, 5))
    assert place.places() == [(0, n) for n in range(5) for _ in range(2)]


def test_a_successor_does_not_take_the_rows_of_another_pipeline_for_its_own(place: SinkDestination) -> None:
    one, other = place.target(pipeline_id="p1"), place.target(pipeline_id="p2")
    put(place.sink(one), one, fenced_range(0, 50), bad=(7,))
    killed_before_its_insert = fenced_range(0, 50)
    put(place.sink(other), other, again(killed_before_its_insert), bad=(7,))
    assert place.places() == [(0, n) for n in range(50) if n != 7 for _ in range(2)]
    assert [row["_offset"] for row in place.refused()] == [7, 7]


def test_a_range_without_rows_is_nothing(place: SinkDestination) -> None:
    target = place.target()
    sink = place.sink(target)
    put(sink, target, fenced_range(0, 2), bad=(0, 1))
    assert place.rows() == []
    assert [row["_offset"] for row in place.refused()] == [0, 1]
    put(sink, target, fenced_range(2, 3))
    assert place.places() == [(0, 2)]


def test_every_type_can_be_written(place: SinkDestination) -> None:
    columns = tuple(Column(name, name, kind) for name, kind, _, _ in EVERY_TYPE)
    target = place.target(columns=columns)
    sink = place.sink(target)
    sink.commit([sink.write(fenced_range(0, 1), row_of_every_type(target), [])])
    stored = place.rows()[0]
    assert {name: plain(stored[name]) for name, *_ in EVERY_TYPE} == {name: wanted for name, *_, wanted in EVERY_TYPE}


def test_new_columns_are_added_where_the_policy_says_so(place: SinkDestination) -> None:
    if place.name == "parquet":
        pytest.skip("files have no common schema")
    target = place.target()
    put(place.sink(target), target, fenced_range(0, 5))
    wider = (*target.columns, Column("more", "more", "Int64", True))
    with pytest.raises(BlockedError, match="more"):
        place.sink(place.target(columns=wider))
    growing = place.target(columns=wider, drift="add-column")
    sink = place.sink(growing)
    put(sink, growing, fenced_range(5, 7))
    assert sorted((row["id"], row["more"]) for row in place.rows() if row["more"] is not None) == [(5, 5), (6, 6)]
    assert place.places() == [(0, n) for n in range(7)]


def test_ranges_beyond_what_the_store_knows_are_found(place: SinkDestination) -> None:
    target = place.target()
    sink = place.sink(target)
    assert sink.written_beyond(0, 0) == 0
    for of in (fenced_range(0, 50), fenced_range(50, 80), fenced_range(0, 10, partition=1)):
        sink.begin([of])
        put(sink, target, of)
    again = place.sink(target)
    assert [again.written_beyond(0, end) for end in (0, 50, 80)] == [80, 80, 0]
    assert (again.written_beyond(1, 0), again.written_beyond(2, 0)) == (10, 0)
    neighbour = place.sink(place.target(pipeline_id="p2"))
    assert neighbour.written_beyond(0, 0) == 0

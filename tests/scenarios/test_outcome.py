"""The judge of scenarios: what is lost, out of order and repeated."""

from tests.scenarios.outcome import judged


def test_what_was_acknowledged_and_not_read_is_lost() -> None:
    outcome = judged("any", {"logs": ["a:0", "a:1"], "gone": ["a:0"]}, {"logs": ["a:0"]})
    assert (outcome.messages, outcome.lost, outcome.clean) == (3, 2, False)


def test_a_message_after_a_later_one_of_its_writer_is_out_of_order() -> None:
    outcome = judged("any", {"logs": ["a:0", "a:1", "b:0"]}, {"logs": ["a:1", "b:0", "a:0"]})
    assert (outcome.lost, outcome.out_of_order, outcome.clean) == (0, 1, False)


def test_what_is_there_twice_is_counted_and_its_first_place_is_its_place() -> None:
    outcome = judged("any", {"logs": ["a:0", "a:1"]}, {"logs": ["a:0", "a:1", "a:0", "a:2"]}, faults=1, longest_ms=3)
    assert (outcome.repeated, outcome.out_of_order, outcome.clean) == (1, 0, True)
    assert (outcome.faults, outcome.figures) == (1, {"longest_ms": 3})


def test_nothing_acknowledged_shows_nothing() -> None:
    assert not judged("any", {}, {}).clean

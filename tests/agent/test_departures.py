"""Who is listed to clients after it has left, and who is not though it has not."""

from holdfast.agent.departures import LISTED_MS, Departures
from holdfast.vocabulary.types import Member

ANN, BOB = Member(id="ann", session="1"), Member(id="bob", session="2")


def test_an_agent_that_left_is_listed_for_a_moment() -> None:
    departures = Departures()
    departures.members_changed([ANN, BOB], 0)
    assert departures.departed(0) == []
    departures.members_changed([ANN], 1_000)
    assert departures.departed(1_000 + LISTED_MS - 1) == [BOB]
    assert departures.departed(1_000 + LISTED_MS) == []


def test_it_is_not_listed_twice_when_it_is_back() -> None:
    departures = Departures()
    departures.members_changed([ANN, BOB], 0)
    departures.members_changed([ANN], 1_000)
    departures.members_changed([ANN, Member(id="bob", session="3")], 1_500)
    assert departures.departed(1_600) == []


def test_a_second_departure_does_not_prolong_the_first() -> None:
    departures = Departures()
    departures.members_changed([ANN, BOB], 0)
    departures.members_changed([ANN], 1_000)
    departures.members_changed([], 1_000 + LISTED_MS - 1)
    assert departures.departed(1_000 + LISTED_MS) == [ANN]


def test_only_the_session_that_was_seen_dead_looks_dead() -> None:
    departures = Departures()
    departures.suspect(BOB, 0)
    assert departures.looks_dead(BOB)
    assert not departures.looks_dead(Member(id="bob", session="3"))
    assert not departures.looks_dead(ANN)


def test_who_is_reached_again_does_not_look_dead_and_listings_are_made_anew() -> None:
    departures = Departures()
    departures.suspect(BOB, 0)
    version = departures.version
    departures.reached("bob")
    assert not departures.looks_dead(BOB)
    assert departures.version != version


def test_what_is_gone_is_forgotten() -> None:
    departures = Departures()
    departures.members_changed([ANN, BOB], 0)
    departures.suspect(BOB, 0)
    departures.members_changed([ANN], 1)
    assert not departures.looks_dead(BOB)

"""When an agent's session is ended before its TTL: the limits, one by one, and all of them in random histories."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.early_takeover import (
    EarlyEnd,
    EarlyTakeoverSettings,
    EndSession,
    Situation,
    Suspicion,
    after_wrong,
    choose,
    next_end,
    obstacle_to,
    was_wrong,
)
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

SETTINGS = EarlyTakeoverSettings()
TTL = 30_000
NOW = 10_000_000
MINUTE = 60_000
DECISIONS: list[int] = []


def suspicion(agent: str, observer: str, ago_ms: int = 100, *, session: str = "", reset_ago_ms: int = 0) -> Suspicion:
    return Suspicion(
        agent=agent,
        session=session or f"session-{agent}",
        observer=observer,
        reset_at_ms=NOW - (reset_ago_ms or ago_ms),
        refused_at_ms=NOW - ago_ms,
    )


def situation(agents: str, *suspicions: Suspicion, **changes: object) -> Situation:
    """Live agents, one letter each, under a planner that has been one for an hour."""
    return replace(
        Situation(
            decider="",
            planner="",
            sessions={agent: f"session-{agent}" for agent in agents},
            suspicions=suspicions,
            seen_at_ms={},
            ends={},
            since_ms=NOW - 60 * MINUTE,
            ttl_ms=TTL,
            store_available=True,
        ),
        **changes,  # type: ignore[arg-type]
    )


def end(ago_ms: int, **more: object) -> EarlyEnd:
    return replace(EarlyEnd(session="old", process="p", ended_at_ms=NOW - ago_ms), **more)  # type: ignore[arg-type]


BOTH = (suspicion("c", "a"), suspicion("c", "b"))


def test_two_live_observers_are_enough() -> None:
    assert choose(situation("abc", *BOTH), NOW, SETTINGS) == EndSession(
        agent="c", session="session-c", observers=("a", "b")
    )


def test_one_is_enough_if_there_are_two_in_all() -> None:
    assert choose(situation("ac", suspicion("c", "a")), NOW, SETTINGS) is not None


def test_an_agent_of_which_nothing_could_move_does_not_keep_others_from_being_ended() -> None:
    both_dead = situation("abcdefg", *BOTH, suspicion("d", "a"), suspicion("d", "b"))
    decision = choose(both_dead, NOW, SETTINGS, may_move=lambda agent: agent == "d")
    assert decision is not None
    assert decision.agent == "d"


@pytest.mark.parametrize(
    ("given_situation", "obstacle"),
    [
        (situation("abc", *BOTH, decider="c", planner="c"), "it is this agent"),
        (situation("ac", suspicion("c", "a"), decider="c", planner="c"), "it is this agent"),
        (situation("abc", *BOTH, decider="a", planner="b"), "the planner decides"),
        (situation("abc", *BOTH, decider="a", planner=None), "the planner decides"),
        (situation("abc", *BOTH, decider="a", planner="c"), None),
        (situation("ac", suspicion("c", "a"), decider="a", planner="c"), None),
        (situation("abcd", *BOTH, decider="d", planner="c"), "this agent has not seen it"),
        (situation("abc", suspicion("c", "a"), decider="a", planner="c"), "1 of 2 observers"),
        (situation("abc", *BOTH, decider="a", planner="c", since_ms=NOW - TTL + 1), "the planner is new"),
        (situation("abc", *BOTH, decider="a", planner="c", store_available=False), "the store is unavailable"),
        (situation("abc", *BOTH, decider="a", planner="c", ends={"x": end(TTL - 1)}), "a session was ended early"),
        (situation("abc", suspicion("c", "a")), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "a", 50)), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "c")), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "gone")), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "b", session="earlier")), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "b", 1_001)), "1 of 2 observers"),
        (situation("abc", suspicion("c", "a"), suspicion("c", "b", 10, reset_ago_ms=1_001)), "1 of 2 observers"),
        (situation("abc", *BOTH, seen_at_ms={"c": NOW - 100}), "0 of 2 observers"),
        (situation("abc", *BOTH, seen_at_ms={"c": NOW - 101}), None),
        (situation("c", suspicion("c", "c")), "0 of 2 observers"),
        (situation("abc", *BOTH, store_available=False), "the store is unavailable"),
        (situation("abc", *BOTH, since_ms=NOW - TTL + 1), "the planner is new"),
        (situation("abc", *BOTH, since_ms=NOW - TTL), None),
        (situation("abc", *BOTH, suspicion("b", "a")), "2 of 3 agents look dead at once"),
        (situation("abcd", *BOTH, suspicion("b", "a")), "2 of 4 agents look dead at once"),
        (situation("abcde", *BOTH, suspicion("b", "a")), None),
        (situation("ac", suspicion("c", "a"), suspicion("a", "c")), "2 of 2 agents look dead at once"),
        (situation("abc", *BOTH, ends={"x": end(TTL - 1)}), "a session was ended early less than a TTL ago"),
        (situation("abc", *BOTH, ends={"x": end(TTL)}), None),
        (situation("abc", *BOTH, ends={"c": end(MINUTE - 1)}), "its session was ended early less than 60000 ms ago"),
        (situation("abc", *BOTH, ends={"c": end(MINUTE)}), None),
        (
            situation("abc", *BOTH, ends={"c": end(5 * MINUTE, wrong=1, paused_until_ms=NOW + 1)}),
            "it was alive after 1",
        ),
        (situation("abc", *BOTH, ends={"c": end(10 * MINUTE, wrong=1, paused_until_ms=NOW)}), None),
        (situation("abc", *BOTH, ends={"b": end(5 * MINUTE, wrong=1, paused_until_ms=NOW + 1)}), None),
    ],
)
def test_each_limit_holds_to_the_millisecond(given_situation: Situation, obstacle: str | None) -> None:
    found = obstacle_to("c", given_situation, NOW, SETTINGS)
    assert (found is None) == (obstacle is None), found
    assert (found or "").startswith(obstacle or "")
    chosen = choose(given_situation, NOW, SETTINGS)
    assert (chosen is not None and chosen.agent == "c") == (obstacle is None)


def test_it_can_be_turned_off() -> None:
    off = EarlyTakeoverSettings(enabled=False)
    assert obstacle_to("c", situation("abc", *BOTH), NOW, off) == "early takeover is off"
    assert choose(situation("abc", *BOTH), NOW, off) is None


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidError, match="invalid wrong_pause_max_ms 1: must be at least 600000"):
        EarlyTakeoverSettings(wrong_pause_max_ms=1)


# ── ended wrongly ──


@pytest.mark.parametrize(
    ("session", "process", "wrong"),
    [("new", "p", True), ("old", "p", False), ("new", "restarted", False), ("new", "", False)],
)
def test_another_session_of_the_same_process_means_that_it_was_alive(session: str, process: str, wrong: bool) -> None:
    assert was_wrong(end(0), session, process) == wrong


def test_a_wrong_end_is_counted_once_and_its_pause_doubles_up_to_two_hours() -> None:
    record, pauses, now_ms = end(0), [], NOW
    for _ in range(7):
        record = after_wrong(record, now_ms, SETTINGS)
        assert not was_wrong(record, "new", "p"), "it was judged"
        pauses.append((record.paused_until_ms - now_ms) // MINUTE)
        now_ms = record.paused_until_ms
        decision = EndSession(agent="c", session="next", observers=())
        record = next_end(decision, "p", record, now_ms)
        assert not record.judged
    assert pauses == [10, 20, 40, 80, 120, 120, 120]


def test_a_restart_forgets_what_was_wrong_with_the_process_before() -> None:
    decision = EndSession(agent="c", session="next", observers=())
    assert next_end(decision, "restarted", end(0, wrong=3), NOW).wrong == 0
    assert next_end(decision, "p", end(0, wrong=3), NOW).wrong == 3


@given(st.integers(0, 100_000), st.integers(2, 7))
def test_in_any_history_the_limits_hold(seed: int, count: int) -> None:
    """Suspicions of every kind, planners that change, outages: what was ended is checked against the limits, said another way."""
    random = SeededRandom(seed).random
    agents = "abcdefg"[:count]
    now_ms, since_ms, ends = NOW, NOW - TTL, dict[str, EarlyEnd]()
    made: list[Suspicion] = []
    ended: list[tuple[int, str]] = []
    for _ in range(100):
        now_ms += random.choice([1, 50, 400, 3_000, 40_000])
        if random.random() < 0.02:
            since_ms = now_ms
        available = random.random() > 0.05
        for _ in range(random.randrange(4)):
            agent, observer = random.choice(agents), random.choice(agents)
            at_ms = now_ms - random.randrange(1_500)
            made.append(
                Suspicion(
                    agent=agent,
                    session=random.choice([f"session-{agent}"] * 4 + ["earlier"]),
                    observer=observer,
                    reset_at_ms=at_ms,
                    refused_at_ms=at_ms + random.randrange(300),
                )
            )
        seen = {agent: now_ms - random.randrange(20_000) for agent in agents}
        decider, planner = random.choice([("", ""), (agents[0], agents[0]), (agents[0], agents[-1])])
        current = replace(
            situation(agents, *made[-20:], decider=decider, planner=planner),
            ends=ends,
            seen_at_ms=seen,
            since_ms=since_ms,
            store_available=available,
        )
        decision = choose(current, now_ms, SETTINGS)
        if decision is None:
            continue
        agent = decision.agent
        assert available
        assert agent != decider
        assert decider == planner or (agent == planner and decider in decision.observers)
        assert now_ms >= since_ms + TTL
        assert all(now_ms - at_ms >= TTL for at_ms, _ in ended), "one agent per TTL"
        assert all(now_ms - at_ms >= MINUTE for at_ms, other in ended if other == agent)
        assert now_ms >= (ends[agent].paused_until_ms if agent in ends else 0)
        assert len(set(decision.observers)) >= (1 if count == 2 else 2)
        assert agent not in decision.observers
        for observer in decision.observers:
            assert any(
                each.observer == observer
                and each.agent == agent
                and each.session == decision.session
                and max(seen[agent], now_ms - SETTINGS.window_ms - 1) < each.reset_at_ms
                for each in made
            )
        ended.append((now_ms, agent))
        ends[agent] = next_end(decision, "p", ends.get(agent), now_ms)
        if random.random() < 0.3:
            ends[agent] = after_wrong(ends[agent], now_ms, SETTINGS)
    DECISIONS.append(len(ended))


def test_random_histories_end_sessions() -> None:
    """Otherwise the limits above are checked on nothing."""
    DECISIONS.clear()
    for seed in range(20):
        test_in_any_history_the_limits_hold.hypothesis.inner_test(seed, 5)  # type: ignore[attr-defined]
    assert sum(DECISIONS) > 20

"""Whether the session of an agent that looks dead may be ended before its TTL. Pure: time is an argument, on one clock.

An early end is safe, because every effect is fenced; a wrong one costs a takeover. So it takes what a dead process alone shows: its
connections reset and its port refusing, seen by two live agents at the same time. And it is rare: rules 1 to 4 of `obstacle_to`.
What is not ended early ends by its TTL, as ever.

Who decides is the planner; of the planner itself, any other agent that has seen it dead, which plans then. The rules are the same.

"Half of the agents look dead" counts from two on: with two agents in all, one that looks dead is half of them, and one observer is
enough there.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyTakeoverSettings:
    """When an agent's session is ended before its TTL.

    `window_ms`: within so long of each other, and of now, the observers must have seen a reset and a refusal. `agent_pause_ms`:
    between two early ends of one agent. `wrong_pause_ms`: how long an agent that was alive after all is left alone; doubled each
    time, up to `wrong_pause_max_ms`.
    """

    enabled: bool = True
    window_ms: int = 1_000
    agent_pause_ms: int = 60_000
    wrong_pause_ms: int = 600_000
    wrong_pause_max_ms: int = 7_200_000

    def __post_init__(self) -> None:
        check_at_least("window_ms", self.window_ms, 1)
        check_at_least("agent_pause_ms", self.agent_pause_ms, 0)
        check_at_least("wrong_pause_ms", self.wrong_pause_ms, 0)
        check_at_least("wrong_pause_max_ms", self.wrong_pause_max_ms, self.wrong_pause_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """`observer` saw the connection to `agent`, whose session was `session`, reset, and a new one refused."""

    agent: str
    session: str
    observer: str
    reset_at_ms: int
    refused_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyEnd:
    """The last early end of an agent. `wrong`: how often it was alive after all; until `paused_until_ms` it is left alone."""

    session: str
    process: str
    ended_at_ms: int
    wrong: int = 0
    paused_until_ms: int = 0
    judged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the agent `decider` knows. `planner`: the agent that plans, perhaps the decider itself.

    `since_ms`: since when the decider has known this planner. `seen_at_ms`: the last sign of life of an agent in the store.
    """

    decider: str
    planner: str | None
    sessions: Mapping[str, str]
    suspicions: Collection[Suspicion]
    seen_at_ms: Mapping[str, int]
    ends: Mapping[str, EarlyEnd]
    since_ms: int
    ttl_ms: int
    store_available: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """End this session now, on the word of these agents."""

    agent: str
    session: str
    observers: tuple[str, ...]


def choose(
    situation: Situation,
    now_ms: int,
    settings: EarlyTakeoverSettings,
    may_move: Callable[[str], bool] = lambda agent: True,
) -> EndSession | None:
    """The session to end now, if one may be: of an agent of whose work something `may_move`."""
    for agent in suspects(situation, now_ms, settings):
        if obstacle_to(agent, situation, now_ms, settings) is None and may_move(agent):
            observers = tuple(sorted(_observers(agent, situation, now_ms, settings)))
            return EndSession(agent=agent, session=situation.sessions[agent], observers=observers)
    return None


def suspects(situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> list[str]:
    """The agents that look dead to somebody now."""
    return sorted({each.agent for each in _fresh(situation, now_ms, settings)})


def obstacle_to(agent: str, situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> str | None:
    """Why the agent's session is not ended now; None: it may be."""
    if not settings.enabled:
        return "early takeover is off"
    if agent == situation.decider:  # whoever decides is alive, whatever keeps others from reaching it
        return "it is this agent, which is alive"
    if situation.planner not in (situation.decider, agent):
        return "the planner decides"
    observers = _observers(agent, situation, now_ms, settings)
    enough = 1 if len(situation.sessions) == 2 else 2
    if len(observers) < enough:  # 1: seen by enough live agents, at the same time, after its last sign of life
        return f"{len(observers)} of {enough} observers saw a reset and a refusal within {settings.window_ms} ms"
    if agent == situation.planner and situation.decider not in observers:  # nobody takes a planner's place on hearsay
        return "this agent has not seen it"
    return (
        _unsure_view(situation, now_ms)
        or _too_many_suspects(situation, now_ms, settings)
        or _too_soon(agent, situation, now_ms, settings)
    )


def was_wrong(end: EarlyEnd, session: str, process: str) -> bool:
    """Whether an agent that is back shows that it was alive: another session of the same process."""
    return not end.judged and bool(process) and process == end.process and session != end.session


def after_wrong(end: EarlyEnd, now_ms: int, settings: EarlyTakeoverSettings) -> EarlyEnd:
    """The record of an early end that was wrong."""
    pause_ms = min(settings.wrong_pause_max_ms, settings.wrong_pause_ms * 2 ** min(end.wrong, 30))
    return replace(end, wrong=end.wrong + 1, paused_until_ms=now_ms + pause_ms, judged=True)


def next_end(decision: EndSession, process: str, before: EarlyEnd | None, now_ms: int) -> EarlyEnd:
    """The record of an early end. How often it was wrong is remembered for as long as the process is the same."""
    wrong = before.wrong if before is not None and before.process == process else 0
    return EarlyEnd(session=decision.session, process=process, ended_at_ms=now_ms, wrong=wrong)


def _unsure_view(situation: Situation, now_ms: int) -> str | None:
    # 2: who is new, or has a new planner, or is without the store, does not know who is alive.
    if not situation.store_available:
        return "the store is unavailable"
    if now_ms - situation.since_ms < situation.ttl_ms:
        return "the planner is new"
    return None


def _too_many_suspects(situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> str | None:
    # 3: many deaths at once are more likely one fault of the network, or of those who look.
    dead = len(suspects(situation, now_ms, settings))
    if dead >= 2 and 2 * dead >= len(situation.sessions):
        return f"{dead} of {len(situation.sessions)} agents look dead at once"
    return None


def _too_soon(agent: str, situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> str | None:
    # 4: one agent per TTL, each agent rarely, and one that was alive after all more rarely still.
    if any(now_ms - each.ended_at_ms < situation.ttl_ms for each in situation.ends.values()):
        return "a session was ended early less than a TTL ago"
    end = situation.ends.get(agent)
    if end is None:
        return None
    if now_ms - end.ended_at_ms < settings.agent_pause_ms:
        return f"its session was ended early less than {settings.agent_pause_ms} ms ago"
    if now_ms < end.paused_until_ms:
        return f"it was alive after {end.wrong} early ends"
    return None


def _fresh(situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> list[Suspicion]:
    """Suspicions of live sessions, by others, of just now."""
    return [
        each
        for each in situation.suspicions
        if situation.sessions.get(each.agent) == each.session
        and each.observer in situation.sessions
        and each.observer != each.agent
        and now_ms - min(each.reset_at_ms, each.refused_at_ms) <= settings.window_ms
    ]


def _observers(agent: str, situation: Situation, now_ms: int, settings: EarlyTakeoverSettings) -> set[str]:
    seen_at_ms = situation.seen_at_ms.get(agent)
    return {
        each.observer
        for each in _fresh(situation, now_ms, settings)
        if each.agent == agent and (seen_at_ms is None or min(each.reset_at_ms, each.refused_at_ms) > seen_at_ms)
    }

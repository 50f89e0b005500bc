"""What must hold in every state.

I1: what was acknowledged is never lost. I2: an offset has one visible value. I3: the visible end never goes back. I4: one history
per epoch and offset. I5: what is published is a prefix of what was acknowledged, and only grows. I6: a value is visible once.
"""

from tests.model.state import START, Limits, Log, State, ViolationError, values_of


def check(state: State, limits: Limits) -> None:
    """Raise `ViolationError` unless every invariant holds."""
    visible = state.visible
    if len(set(visible)) < len(visible):
        raise ViolationError(f"I6: a value is visible twice: {visible}")
    if not set(state.answered) <= set(visible):
        raise ViolationError(f"I1: {state.answered} was acknowledged, and {visible} is visible")
    published = values_of(state.published)
    if published != visible[: len(published)]:
        raise ViolationError(f"I5: {published} is published, and {visible} was acknowledged")
    newest = next((epoch.log for epoch in reversed(state.epochs) if epoch.served), ())
    if values_of(newest)[: len(visible)] != visible:
        raise ViolationError(f"I1: the newest leader has {newest}, and {visible} was acknowledged")
    _check_followers(state, limits)
    _check_histories(state)


def _check_followers(state: State, limits: Limits) -> None:
    """A follower shows min(hw, matched) of what it has."""
    for number, epoch in enumerate(state.epochs, 1):
        for (agent, wal), matched in zip(epoch.members, epoch.acked, strict=True):
            replica = state.replicas[agent]
            if replica.wal != wal or replica.promised != number:
                continue
            end = min(epoch.hw, matched)
            if limits.bug == "follower shows its log end":
                end = len(replica.log)
            elif limits.bug == "hw applied to an unmatched log":
                end = min(epoch.hw, len(replica.log))
            shown = values_of(replica.log[: max(0, end)])
            if shown != state.visible[: len(shown)]:
                raise ViolationError(f"I2: a follower shows {shown}, and {state.visible} is visible")


def _check_histories(state: State) -> None:
    """Equal positions mean equal histories."""
    known: dict[tuple[int, int, bool], Log] = {}
    logs = {replica.log for replica in state.replicas} | {epoch.log for epoch in state.epochs}
    for log in logs:
        offset = 0
        for at, (epoch, value) in enumerate(log, 1):
            offset += value != START
            history = known.setdefault((epoch, offset, value == START), log[:at])
            if history is not log and history != log[:at]:
                raise ViolationError(f"I4: epoch {epoch}, offset {offset} is {log[:at]} and {history}")

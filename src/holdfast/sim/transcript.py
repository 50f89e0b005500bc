"""A history as text, one line per event, for debugging a failed seed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.contracts.store import Change
from holdfast.sim.checker import Violation
from holdfast.sim.history import (
    ActorCrashed,
    ActorsStopped,
    CommitApplied,
    EffectAcknowledged,
    EffectStarted,
    Event,
    FaultsHealed,
    LeaseAcquired,
    ReadObserved,
    SessionEnded,
    SessionRenewed,
    TraceNote,
)


def transcript(
    events: Iterable[Any],
    violations: Iterable[Violation] = (),
    *,
    described: Callable[[Any], tuple[str, str]] | None = None,
) -> Iterator[str]:
    """The lines of a history; a broken rule follows the event that broke it. `described`: by default `describe`."""
    described = described or describe
    broken: dict[int, list[Violation]] = {}
    for violation in violations:
        broken.setdefault(violation.index, []).append(violation)
    for index, event in enumerate(events):
        who, text = described(event)
        yield f"{event.at_ms:9.1f}  {who:<8} {text}"
        for violation in broken.get(index, ()):
            yield f"{'':9}  {'!':<8} {violation.rule}: {violation.what}"


def describe(event: Event) -> tuple[str, str]:
    """Who did it, and what."""
    match event:
        case CommitApplied(version=version, changes=changes):
            return "store", f"v{version}: " + ", ".join(map(_change, changes))
        case SessionEnded(session=session):
            return "store", f"ends session {session[:6]}"
        case SessionRenewed(session=session):
            return "store", f"renews session {session[:6]}"
        case ReadObserved(versions=versions, whole=whole):
            shown = ", ".join(f"{key}@{version}" if version else f"no {key}" for key, version in versions.items())
            return "reader", f"sees {shown or 'nothing'}" + (f" (all of {whole})" if whole else "")
        case LeaseAcquired(actor=actor, resource=resource, epoch=epoch, version=version):
            return actor, f"has {resource} at epoch {epoch} (v{version})"
        case EffectStarted(actor=actor, resource=resource, epoch=epoch, number=number):
            return actor, f"acts on {resource} at epoch {epoch}: effect {number}"
        case EffectAcknowledged(actor=actor, resource=resource, number=number, version=version):
            return actor, f"effect {number} on {resource} acknowledged (v{version})"
        case ActorCrashed(actor=actor, error=error):
            return actor, f"fails: {error}"
        case FaultsHealed():
            return "world", "heals: nothing fails from here on"
        case ActorsStopped(holders=holders):
            return "world", f"all have left; held: {', '.join(holders) or 'nothing'}"
        case TraceNote(who=who, text=text):
            return who, text


def _change(change: Change) -> str:
    if change.entry is None:
        return f"no {change.key}"
    under = f" under {change.entry.session[:6]}" if change.entry.session else ""
    return f"{change.key} = {change.entry.value.decode()}{under}"

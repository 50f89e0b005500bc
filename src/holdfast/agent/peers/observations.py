"""What ended a connection to a peer, or prevented one. Pure.

The planner ends a session early only on what a dead process alone shows: its connections end without a word, and its port refuses
new ones. So these are told apart from everything that a slow, frozen, cut off or misconfigured peer shows as well.
"""

import errno
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DialOutcome(StrEnum):
    """How a connection ended, or why there was none."""

    RESET = (
        "reset"  # ended by the peer's machine, without a word of the peer: as the kernel does for a process that died
    )
    REFUSED = "refused"  # nobody listens
    TIMED_OUT = "timed out"
    UNREACHABLE = "unreachable"
    TLS = "TLS error"
    REJECTED = "rejected"  # by the handshake, at either end
    MALFORMED = "malformed"
    CLOSED = "closed"  # by the peer, with a reason
    STOPPED = "stopped"  # by us


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen of a peer, at `at_ms` of this host's boot clock. `established`: a connection that worked has ended."""

    agent: str
    wal_id: str
    outcome: DialOutcome
    at_ms: int
    established: bool = False
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.outcome.value}: {self.detail}" if self.detail else self.outcome.value


_RESETS: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_TIMED_OUT: Final = frozenset({errno.ETIMEDOUT})


def outcome_of(error: BaseException) -> DialOutcome:
    """What an error of a connection, or of an attempt to connect, shows."""
    if isinstance(error, ssl.SSLError):
        return DialOutcome.TLS
    if isinstance(error, ConnectionRefusedError):
        return DialOutcome.REFUSED
    if isinstance(error, _RESETS):
        return DialOutcome.RESET
    if isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in _TIMED_OUT):
        return DialOutcome.TIMED_OUT
    return DialOutcome.UNREACHABLE


def outcome_of_attempts(errors: Sequence[BaseException]) -> tuple[DialOutcome, BaseException]:
    """What attempts to all addresses of a host show together: it is refused only where every address refused."""
    outcomes = [(outcome_of(error), error) for error in errors]
    return next((each for each in outcomes if each[0] is not DialOutcome.REFUSED), outcomes[0])

"""Which code a world runs: the shipped code, or a mutant with a single mistake."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.store import Committed, Conflict
from holdfast.kernel import lease
from holdfast.sim.store_server import SimStore

Hold = Callable[..., AbstractAsyncContextManager[lease.Lease | lease.Held]]
CommitFenced = Callable[..., Awaitable[Committed | Conflict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Everything a mutant may replace; the defaults are the shipped code."""

    name: str
    wrong: str = ""  # what is wrong with it, in one line
    store: type[SimStore] = SimStore
    hold: Hold = lease.hold_lease
    commit_fenced: CommitFenced = lease.commit_fenced
    resolve_is_final: bool = True
    boot_clock_runs_through_pauses: bool = True


CORRECT: Final = Variant(name="correct")

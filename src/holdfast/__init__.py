"""Holdfast: event logs, priority heaps and Spark pipelines on object storage, each owned by one lease at a time.

    async with holdfast.connect("sqlite:///work.db") as hf, hf.session() as session:
        lease = await session.acquire("nightly-report")
        await lease.commit(holdfast.Put("report/done", b"true"))

What `__all__` lists here, and in `holdfast.client`, `holdfast.heaps`, `holdfast.registry`, `holdfast.spark` and `holdfast.testing`,
is public; the rest is private. Names are loaded when they are first used: the import itself costs nothing.
"""

TYPE_CHECKING = False  # to a type checker it is true; `typing` takes 20 ms, in which an interrupt would be a traceback

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast import client, heaps, registry, spark, testing
    from holdfast.contracts.store import (
        Absent,
        AtVersion,
        Committed,
        Conflict,
        Delete,
        Entry,
        Operation,
        Put,
        Requirement,
        Scan,
        Store,
    )
    from holdfast.sdk import Held, Holdfast, Lease, Registry, Session, connect
    from holdfast.vocabulary.errors import (
        ClosedError,
        CorruptError,
        ExpiredError,
        FencedError,
        HoldfastError,
        InvalidError,
        OutcomeUnknownError,
        UnavailableError,
        UsageError,
    )
    from holdfast.vocabulary.runtime import Runtime

__all__ = [
    "Absent",
    "AtVersion",
    "ClosedError",
    "Committed",
    "Conflict",
    "CorruptError",
    "Delete",
    "Entry",
    "ExpiredError",
    "FencedError",
    "Held",
    "Holdfast",
    "HoldfastError",
    "InvalidError",
    "Lease",
    "Operation",
    "OutcomeUnknownError",
    "Put",
    "Registry",
    "Requirement",
    "Runtime",
    "Scan",
    "Session",
    "Store",
    "UnavailableError",
    "UsageError",
    "__version__",
    "client",
    "connect",
    "heaps",
    "registry",
    "spark",
    "testing",
]

_MODULES = frozenset({"client", "heaps", "registry", "spark", "testing"})
_HOMES = {
    "holdfast.contracts.store": (
        "Absent AtVersion Committed Conflict Delete Entry Operation Put Requirement Scan Store"
    ),
    "holdfast.sdk": "Held Holdfast Lease Registry Session connect",
    "holdfast.vocabulary.errors": (
        "ClosedError CorruptError ExpiredError FencedError HoldfastError InvalidError OutcomeUnknownError"
        " UnavailableError UsageError"
    ),
    "holdfast.vocabulary.runtime": "Runtime",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would take it for "every name exists"

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"holdfast.{name}")
        if name not in _HOME_OF:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_HOME_OF[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

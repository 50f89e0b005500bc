"""The request that is being answered, for log lines: its id, and the trace it belongs to.

The one rule: whoever answers a request sets it for what is awaited and started inside; log lines read it, nobody else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_fields: Final[ContextVar[Mapping[str, str]]] = ContextVar("correlation", default={})  # noqa: B039 - never changed


@contextmanager
def correlated(**fields: str) -> Iterator[None]:
    """Log lines written inside have these fields, those that are empty left out."""
    token = _fields.set({**_fields.get(), **{name: value for name, value in fields.items() if value}})
    try:
        yield
    finally:
        _fields.reset(token)


def correlation_fields() -> Mapping[str, str]:
    """The fields of log lines that are written here."""
    return _fields.get()

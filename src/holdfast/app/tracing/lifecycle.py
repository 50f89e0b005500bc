"""Traces of a server: off, or exported by the SDK, which is imported only then."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.app.tracing.settings import TraceSettings
from holdfast.vocabulary.installation import NotInstalledError

if TYPE_CHECKING:
    from holdfast.app.tracing.otel import Exporting


@asynccontextmanager
async def running_traces(settings: TraceSettings, *, instance: str) -> "AsyncIterator[Exporting | None]":
    """The tracer of the process for the body; None: traces are off."""
    if not settings.is_on:
        yield None
        return
    try:
        from holdfast.app.tracing.otel import exporting
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError("traces", missing.name or "opentelemetry", "otel") from None
    async with exporting(settings, instance=instance) as traces:
        yield traces

"""Object URLs: which engine a URL names, and a useful error for one that names none.

`open_objects` is the entry point: the engine, a counter of its requests, retries over both. Engines are imported when first opened.
Secrets in a URL are never shown.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from holdfast.contracts.objects import Objects
from holdfast.objects.counters import CLOUD_PRICES, FREE, CountingObjects, ObjectCounters
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.redaction import redacted
from holdfast.vocabulary.settings import settings_from

S = TypeVar("S")

# Options whose values are shown; all others, misspelt ones too, are shown as ***.
_SHOWN: Final = frozenset(
    {"endpoint", "region", "account_name", "virtual_hosted_style_request", "s3_express", "ca_file", "check", "unsafe"}
    | {"task_role", "sts_endpoint"}
    | {"deadline_ms", "pause_ms", "pause_ms_max", "attempt_timeout_ms", "connect_timeout_ms", "threads_max"}
)


@dataclass(frozen=True, slots=True)
class ObjectsUrl:
    """A parsed URL: its parts and its `?name=value` options. The text itself is not kept: it may hold a secret."""

    parts: SplitResult
    options: dict[str, str]

    @property
    def shown(self) -> str:
        """The URL for logs and errors."""
        options = "&".join(f"{name}={value if name in _SHOWN else '***'}" for name, value in self.options.items())
        return redacted(self.parts._replace(query=options, fragment="").geturl())

    def settings(self, kind: type[S]) -> S:
        """Settings of `kind`, from the options of the same names."""
        names = _field_names(kind)
        return settings_from(kind, {name: value for name, value in self.options.items() if name in names})

    def check_options(self, *known: str, settings: tuple[type, ...] = ()) -> None:
        """Refuse an unknown option, so that a misspelt one is not ignored."""
        allowed = [*known, *(name for kind in (*settings, RetrySettings) for name in _field_names(kind))]
        for name in self.options:
            if name not in allowed:
                raise InvalidError(f"option of {self.shown}", name, "one of " + ", ".join(sorted(allowed)))


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


OpenEngine = Callable[[ObjectsUrl, Clock, Random], AbstractAsyncContextManager[Objects]]

# scheme → (module with an `open_url` function, extra that brings its driver, an example for error texts)
_ENGINES: Final = {
    "memory": ("holdfast.objects.memory", "", "memory:"),
    "file": ("holdfast.objects.folder", "", "file:///path/to/folder"),
    "s3": ("holdfast.objects.remote", "s3", "s3://bucket/prefix?region=eu-central-1"),
    "gs": ("holdfast.objects.remote", "s3", "gs://bucket/prefix"),
    "az": ("holdfast.objects.remote", "s3", "az://container/prefix?account_name=name"),
}


def parse_objects_url(text: str) -> ObjectsUrl:
    """Parse a URL; the error lists the known ones."""
    try:
        parts = urlsplit(text)
    except ValueError as error:  # without the text: it may hold a secret
        raise InvalidError("objects URL", f"{text.partition('://')[0]}://…", f"a URL ({error})") from None
    url = ObjectsUrl(parts, dict(parse_qsl(parts.query, keep_blank_values=True)))
    if parts.scheme not in _ENGINES:
        raise InvalidError(
            "objects URL", url.shown, "one of " + ", ".join(example for _, _, example in _ENGINES.values())
        )
    return url


def counters_for(url: str) -> ObjectCounters:
    """Counters for a URL, with the prices of its service."""
    return ObjectCounters(prices=CLOUD_PRICES if _ENGINES[parse_objects_url(url).parts.scheme][1] else FREE)


@asynccontextmanager
async def open_objects(
    url: str, *, clock: Clock, random: Random, counters: ObjectCounters | None = None, create: bool = True
) -> AsyncIterator[Objects]:
    """Open the engine of a URL, checked for access. `counters` count its requests. See `docs/objects.md` for every option.

    Not `create`: `InvalidError` for a folder that does not exist, which a mistyped URL would create.
    """
    parsed = parse_objects_url(url)
    module, extra, _ = _ENGINES[parsed.parts.scheme]
    try:
        engine_module = import_module(module)
    except ModuleNotFoundError as missing:
        if not extra or (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError(f"object storage {parsed.shown}", missing.name or module, extra) from None
    if not create and hasattr(engine_module, "check_exists"):
        engine_module.check_exists(parsed)
    open_url: OpenEngine = engine_module.open_url
    settings = parsed.settings(RetrySettings)
    if counters is None:
        counters = counters_for(url)
    async with open_url(parsed, clock, random) as engine:
        counted = CountingObjects(engine, counters=counters, clock=clock)
        yield RetryingObjects(
            counted,
            clock=clock,
            random=random,
            settings=settings,
            service=parsed.shown,
            on_retry=counters.retried,
        )

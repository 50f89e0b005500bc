"""Store URLs: which engine a URL names, and a useful error for one that names none.

Engines are imported when first opened: a process loads only the engine it uses, and a missing driver is an error that names the
extra to install.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from holdfast.contracts.store import Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.redaction import redacted


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A parsed store URL: `text` as given, its parts, and its `?name=value` options."""

    text: str
    parts: SplitResult
    options: dict[str, str]

    @property
    def shown(self) -> str:
        """The URL for logs and errors: without its secrets."""
        return redacted(self.text)

    def flag(self, name: str) -> bool:
        """Whether an option such as `?unsafe=1` is set."""
        return self.options.get(name, "0").lower() in ("1", "true", "yes")

    def check_options(self, *known: str) -> None:
        """Refuse an unknown option, so that a misspelt one is not ignored."""
        for name in self.options:
            if name not in known:
                raise InvalidError(
                    f"option of {self.shown}",
                    name,
                    "one of " + ", ".join(known) if known else "absent: this engine has no options",
                )


OpenEngine = Callable[[StoreUrl, Clock, Random], AbstractAsyncContextManager[Store]]

# scheme → (module with an `open_url` function, extra that brings its driver, an example for error texts)
_ENGINES: Final = {
    "memory": ("holdfast.stores.memory", "", "memory:"),
    "sqlite": ("holdfast.stores.sqlite", "", "sqlite:///path/to/holdfast.db"),
    "postgresql": ("holdfast.stores.postgres", "postgres", "postgresql://user:password@host:5432/database"),
    "etcd": ("holdfast.stores.etcd", "etcd", "etcd://host:2379,host2:2379/prefix"),
    "redis": ("holdfast.stores.redis", "redis", "redis://host:6379/0"),
}
_ALIASES: Final = {
    "postgres": "postgresql",
    "etcds": "etcd",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
}


def parse_store_url(text: str) -> StoreUrl:
    """Parse a URL; the error lists the known ones."""
    try:
        parts = urlsplit(text)
    except ValueError as error:  # without the text: it may hold a password
        raise InvalidError("store URL", f"{text.partition('://')[0]}://…", f"a URL ({error})") from None
    url = StoreUrl(text, parts, dict(parse_qsl(parts.query, keep_blank_values=True)))
    if _ALIASES.get(parts.scheme, parts.scheme) not in _ENGINES:
        examples = ", ".join(example for _, _, example in _ENGINES.values())
        raise InvalidError("store URL", url.shown, f"one of {examples}")
    return url


def is_embedded_etcd(text: str) -> bool:
    """Whether the URL is `etcd:embedded`: a member that `holdfast serve` runs, whose address follows from its settings."""
    parts = urlsplit(text)
    return parts.scheme == "etcd" and not parts.netloc and parts.path == "embedded"


@asynccontextmanager
async def open_store(url: str, *, clock: Clock, random: Random, create: bool = True) -> AsyncIterator[Store]:
    """Open the store a URL names, checked for durability. See `docs/stores.md` for every option.

    Not `create`: `InvalidError` for a file that does not exist, which a mistyped URL would create.
    """
    parsed = parse_store_url(url)
    module, extra, _ = _ENGINES[_ALIASES.get(parsed.parts.scheme, parsed.parts.scheme)]
    try:
        engine_module = import_module(module)
    except ModuleNotFoundError as missing:
        if not extra or (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError(f"store {parsed.shown}", missing.name or module, extra) from None
    if not create and hasattr(engine_module, "check_exists"):
        engine_module.check_exists(parsed)
    open_url: OpenEngine = engine_module.open_url
    async with open_url(parsed, clock, random) as store:
        yield store

"""The effective settings: default < file < StreamHouse's variables < ours < flags, and for each where it came from.

A value that cannot be is refused with its name, its origin and what is allowed; nothing is ever corrected silently.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from holdfast.agent.settings import AgentSettings
from holdfast.app.addresses import Address, AdvertisedAddress, http_address
from holdfast.app.config.aliases import from_aliases, notices
from holdfast.app.config.catalog import CATALOGUE, SECTIONS, Setting
from holdfast.app.config.redaction import redacted
from holdfast.app.config.settings import ServeSettings
from holdfast.app.config.sources import SourceValue, from_environment, from_file, from_flags
from holdfast.objects.urls import parse_objects_url
from holdfast.stores.urls import parse_store_url
from holdfast.vocabulary.errors import InvalidError

CONFIG_VARIABLE: Final = "HOLDFAST_CONFIG"
DEFAULT: Final = "default"
_AGENT_PARTS: Final = ("session", "membership", "planner", "follower", "log", "wal", "upkeep", "groups")
_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting as it is shown to a person: its secrets hidden."""

    name: str
    value: object
    origin: str
    everyday: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings, every value with its origin, and what was said in vain."""

    settings: ServeSettings
    shown: tuple[ShownSetting, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any
    origin: str


class _Values:
    """Values by setting, with their origins, for building the typed settings."""

    def __init__(self, given: Iterable[SourceValue]) -> None:
        self._by_name = {name: _Value(setting.default, DEFAULT) for name, setting in CATALOGUE.items()}
        for each in given:
            self._by_name[each.name] = _Value(_read(CATALOGUE[each.name], each), each.origin)

    def __getitem__(self, name: str) -> Any:
        return self._by_name[name].value

    def origin(self, name: str) -> str:
        return self._by_name[name].origin

    def fill(self, name: str, value: object) -> None:
        """What a default really means, once other settings are known."""
        if not self[name]:
            self._by_name[name] = _Value(value, self.origin(name))

    def title(self, name: str) -> str:
        """A setting and where its value came from, for refusals."""
        return f"{name} (from {self.origin(name)})"

    def section(self, section: str, **parts: object) -> Any:
        """The settings class of a section, built from its values."""
        kind = SECTIONS[section]
        of_kind = {field.name for field in fields(kind)}
        names = {name.partition(".")[2]: name for name in CATALOGUE if name.startswith(f"{section}.")}
        known = {field: self[name] for field, name in names.items() if field in of_kind}
        try:
            return kind(**{**known, **parts})
        except InvalidError as error:
            if error.what not in names:
                raise
            raise InvalidError(self.title(names[error.what]), error.given, error.allowed) from None

    def shown(self) -> tuple[ShownSetting, ...]:
        return tuple(
            ShownSetting(
                name,
                _shown(CATALOGUE[name], known.value),
                known.origin,
                CATALOGUE[name].everyday,
            )
            for name, known in self._by_name.items()
        )


def _shown(setting: Setting, value: object) -> object:
    if setting.hidden and value:
        return "***"
    return redacted(str(value)) if setting.url else value


def effective_settings(
    *,
    flags: Mapping[str, object],
    assignments: tuple[str, ...] = (),
    file: str = "",
    environment: Mapping[str, str],
    directory: Path,
) -> EffectiveSettings:
    """Join all sources. Relative paths are relative to `directory`, which is where the command was called."""
    file = file or environment.get(CONFIG_VARIABLE, "")
    values = _Values(
        chain(
            from_file(directory / file, shown=file) if file else (),
            from_aliases(environment),
            from_environment(environment),
            from_flags(flags, assignments),
        )
    )
    data = directory / Path(values["data"]).expanduser()
    values.fill("store", "sqlite:///" + quote(str(data / "store.db")))
    values.fill("objects", "file://" + quote(str(data / "objects")))
    settings = _built(values, data)
    return EffectiveSettings(settings=settings, shown=values.shown(), notices=tuple(notices(environment)))


def _built(values: _Values, data: Path) -> ServeSettings:
    _check_urls(values)
    agent: AgentSettings = values.section(
        "agent", id="unnamed", **{part: values.section(part) for part in _AGENT_PARTS}
    )
    names = {"log_format": "logging.format", "log_level": "logging.level", "agent id": "agent.id"}
    try:
        return ServeSettings(
            data=data,
            store=values["store"],
            objects=values["objects"],
            roles=tuple(dict.fromkeys(role.strip() for role in values["roles"].split(",") if role.strip())),
            insecure=values["insecure"],
            print_addresses=values["print_addresses"],
            stop_ms=values["stop_ms"],
            log_format=values["logging.format"],
            log_level=values["logging.level"].lower(),
            listen=Address.parse(values.title("kafka.listen"), values["kafka.listen"]),
            advertise=AdvertisedAddress.parse(values.title("kafka.advertise"), values["kafka.advertise"]),
            http_listen=http_address(
                values.title("http.listen"), values["http.listen"], asked=values.origin("http.listen") != DEFAULT
            ),
            clickhouse=values["clickhouse"],
            agent_id=values["agent.id"],
            zone=values["agent.zone"],
            group=values["agent.group"],
            agent=agent,
            kafka=values.section("kafka"),
            http=values.section("http"),
            cache=values.section("cache"),
            worker=values.section("worker"),
            spark=values.section("spark", conf=_pairs(values.title("spark.conf"), values["spark.conf"])),
            embedded=values.section("embedded"),
        )
    except InvalidError as error:
        name = names.get(error.what, error.what)
        if name not in CATALOGUE:
            raise
        raise InvalidError(values.title(name), error.given, error.allowed) from None


def _pairs(title: str, text: str) -> dict[str, str]:
    """`NAME=VALUE …`, with a shell's quotes. A value may be a secret, so it is in no refusal."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidError(title, "…", f"NAME=VALUE, quoted as in a shell ({error})") from None
    for word in words:
        if "=" not in word:
            raise InvalidError(title, word, "NAME=VALUE, such as spark.executor.memory=2g")
    return dict(word.split("=", 1) for word in words)


def _check_urls(values: _Values) -> None:
    """Refuse a URL no engine has now, and without its secrets: the engines themselves come later."""
    for name, parse in (("store", parse_store_url), ("objects", parse_objects_url)):
        try:
            parse(values[name])
        except (InvalidError, ValueError) as error:
            allowed = error.allowed if isinstance(error, InvalidError) else f"a URL ({error})"
            raise InvalidError(values.title(name), redacted(values[name]), allowed) from None


def _read(setting: Setting, given: SourceValue) -> Any:
    value = given.value
    if setting.name == "roles" and isinstance(value, list):
        value = ",".join(map(str, value))
    if setting.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    try:
        return msgspec.convert(value, type=setting.kind, strict=given.typed)
    except msgspec.ValidationError:
        shown = redacted(str(value)) if setting.url else value
        raise InvalidError(f"{setting.name} (from {given.origin})", shown, _WORDS[setting.kind]) from None

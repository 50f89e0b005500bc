"""The effective settings: default < file < StreamHouse's variables < ours < flags, each with its origin.

Invalid values are refused with name, origin and what is allowed, all of them at once; nothing is corrected silently.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.agent.settings import AgentSettings
from holdfast.app.addresses import Address, AdvertisedAddress, address_or_off
from holdfast.app.config.aliases import from_aliases, notices
from holdfast.app.config.catalog import CATALOGUE, SECTIONS, Setting
from holdfast.app.config.settings import ROLES, ServeSettings
from holdfast.app.config.sources import SourceValue, from_environment, from_file, from_flags
from holdfast.kernel.membership import MembershipSettings
from holdfast.kernel.session import SessionSettings
from holdfast.objects.urls import parse_objects_url
from holdfast.stores.urls import parse_store_url
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.redaction import redacted

T = TypeVar("T")

CONFIG_VARIABLE: Final = "HOLDFAST_CONFIG"
DEFAULT: Final = "default"
_AUTO: Final = "auto"
_GRPC_LISTEN: Final = "127.0.0.1:50051"
OFF: Final = "off"
_AGENT_PARTS: Final = (
    *("session", "membership", "planner", "early_takeover", "follower"),
    *("log", "wal", "upkeep", "groups", "cursors", "heaps", "peers", "replica"),
)
# What ServeSettings calls a field in an error → the setting, and → the field where the two differ.
_SERVE_NAMES: Final = {
    "roles": "roles",
    "log_format": "logging.format",
    "log_level": "logging.level",
    "stop_ms": "stop_ms",
    "store_wait_ms": "store_wait_ms",
    "agents": "agents",
    "clickhouse": "clickhouse",
    "agent id": "agent.id",
}
_SERVE_FIELDS: Final = {"agent id": "agent_id"}
_WORDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One setting for display, without its secrets."""

    name: str
    value: object
    origin: str
    everyday: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The settings, every value with its origin, and variables that have no effect."""

    settings: ServeSettings
    shown: tuple[ShownSetting, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any
    origin: str


class _ReportedError(InvalidError):
    """Settings that cannot be built; the mistake is already collected."""


class _Values:
    """Values by setting, with their origins, for building the typed settings. Mistakes are collected, the default used instead."""

    def __init__(self, given: Iterable[SourceValue | InvalidError]) -> None:
        self.mistakes: list[InvalidError] = []
        self._by_name = {name: _Value(setting.default, DEFAULT) for name, setting in CATALOGUE.items()}
        for each in given:
            if isinstance(each, InvalidError):
                self.mistakes.append(each)
            else:
                self._set(each)

    def _set(self, given: SourceValue) -> None:
        try:
            self._by_name[given.name] = _Value(_read(CATALOGUE[given.name], given), given.origin)
        except InvalidError as error:
            self.mistakes.append(error)

    def __getitem__(self, name: str) -> Any:
        return self._by_name[name].value

    def origin(self, name: str) -> str:
        return self._by_name[name].origin

    def fill(self, name: str, value: object) -> None:
        """Set a default that depends on other settings."""
        if not self[name]:
            self._by_name[name] = _Value(value, self.origin(name))

    def clear(self, name: str) -> None:
        """Leave a setting empty."""
        self._by_name[name] = _Value("", self.origin(name))

    def fill_default(self, name: str, value: int) -> None:
        """Lower a default that must fit another setting."""
        if self.origin(name) == DEFAULT:
            self._by_name[name] = _Value(max(1, min(value, self[name])), DEFAULT)

    def title(self, name: str) -> str:
        """A setting and its origin, for errors."""
        return f"{name} (from {self.origin(name)})"

    def attempt(self, make: Callable[[], T], otherwise: T) -> T:
        """`make()`; `otherwise` if it raised `InvalidError`, which is kept."""
        try:
            return make()
        except _ReportedError:
            return otherwise
        except InvalidError as error:
            self.mistakes.append(error)
            return otherwise

    def section(self, section: str, **parts: object) -> Any:
        """The settings class of a section, built from its values."""
        kind = SECTIONS[section]
        of_kind = {field.name for field in fields(kind)}
        names = {name.partition(".")[2]: name for name in CATALOGUE if name.startswith(f"{section}.")}
        known = {field: self[name] for field, name in names.items() if field in of_kind}
        return self.build(lambda fixed: kind(**{**known, **parts, **fixed}), names)

    def build(self, make: Callable[[dict[str, Any]], T], names: Mapping[str, str]) -> T:
        """`make` with no fields fixed; each refused field is a mistake, and fixed to its default for the next try."""
        fixed: dict[str, Any] = {}
        while True:
            try:
                return make(fixed)
            except InvalidError as error:
                name = names.get(error.what)
                if name is None:
                    raise
                if error.what in fixed:  # its default does not fit the other values, which are the mistake
                    raise _ReportedError("settings", None, "") from None
                self.mistakes.append(InvalidError(self.title(name), error.given, error.allowed))
                fixed[error.what] = CATALOGUE[name].default

    def raise_mistakes(self) -> None:
        """Raise every mistake at once, each once."""
        texts = list(dict.fromkeys(map(str, self.mistakes)))
        if len(texts) == 1:
            raise self.mistakes[0]
        if texts:
            raise UsageError("\n  ".join([f"{len(texts)} invalid settings:", *texts]))

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
    """Join all sources. Relative paths are relative to `directory`, the working directory of the command."""
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
    _check_urls(values)
    _follow_ttls(values)
    _share_certificates(values)
    settings = values.attempt(lambda: _built(values, data, directory), None)
    values.raise_mistakes()
    assert settings is not None  # otherwise there was a mistake
    return EffectiveSettings(settings=settings, shown=values.shown(), notices=tuple(notices(environment)))


def _follow_ttls(values: _Values) -> None:
    """Shorter TTLs shorten what must fit into them and was not set."""
    ttl_ms, shown_ms = values["session.ttl_ms"], values["membership.shown_ms"]
    session, membership = SessionSettings(), MembershipSettings()
    for name in ("renew_ms", "margin_ms", "stall_ms", "retry_ms"):
        values.fill_default(f"session.{name}", getattr(session, name) * ttl_ms // session.ttl_ms)
    values.fill_default("membership.heartbeat_ms", membership.heartbeat_ms * shown_ms // membership.shown_ms)


def _share_certificates(values: _Values) -> None:
    """A port without a certificate has the common one; `off` is none. Between agents it takes the authorities, too."""
    for section in ("kafka", "http", "text", "peers"):
        certificate, key = f"{section}.tls_cert", f"{section}.tls_key"
        if values[certificate] == OFF:
            values.clear(certificate)
        elif not values[certificate] and not values[key] and (section != "peers" or values["tls.ca"]):
            values.fill(certificate, values["tls.cert"])
            values.fill(key, values["tls.key"])
        if section in ("text", "peers") and values[certificate]:
            values.fill(f"{section}.tls_ca", values["tls.ca"])
    if values["tls.cert"] and not values["tls.key"]:
        values.mistakes.append(InvalidError(values.title("tls.key"), "", "a file: tls.cert is given"))


def _built(values: _Values, data: Path, directory: Path) -> ServeSettings:
    agent: AgentSettings = values.section(
        "agent", id="unnamed", **{part: values.section(part) for part in _AGENT_PARTS}
    )
    default = ServeSettings(data=data, store="", objects="")
    given: dict[str, Any] = {
        "data": data,
        "store": values["store"],
        "objects": values["objects"],
        "roles": tuple(dict.fromkeys(role.strip() for role in values["roles"].split(",") if role.strip())),
        "insecure": values["insecure"],
        "print_addresses": values["print_addresses"],
        "stop_ms": values["stop_ms"],
        "store_wait_ms": values["store_wait_ms"],
        "agents": values["agents"],
        "log_format": values["logging.format"],
        "log_level": values["logging.level"].lower(),
        "listen": values.attempt(
            lambda: Address.parse(values.title("kafka.listen"), values["kafka.listen"]), default.listen
        ),
        "advertise": values.attempt(
            lambda: AdvertisedAddress.parse(values.title("kafka.advertise"), values["kafka.advertise"]),
            default.advertise,
        ),
        "peer_listen": values.attempt(
            lambda: _optional_address(values.title("peers.listen"), values["peers.listen"]), None
        ),
        "peer_advertise": values.attempt(
            lambda: AdvertisedAddress.parse(values.title("peers.advertise"), values["peers.advertise"]),
            default.peer_advertise,
        ),
        "http_listen": values.attempt(
            lambda: address_or_off(values.title("http.listen"), values["http.listen"], usual_port=8080), None
        ),
        "grpc_listen": values.attempt(
            lambda: address_or_off(
                values.title("grpc.listen"),
                _GRPC_LISTEN if values["grpc.listen"] == _AUTO else values["grpc.listen"],
                usual_port=50051,
            ),
            None,
        ),
        "grpc_default": values["grpc.listen"] == _AUTO,
        "text_listen": values.attempt(
            lambda: address_or_off(values.title("text.listen"), values["text.listen"], usual_port=9095), None
        ),
        "text_advertise": values.attempt(
            lambda: AdvertisedAddress.parse(values.title("text.advertise"), values["text.advertise"]),
            default.text_advertise,
        ),
        "clickhouse": values["clickhouse"],
        "agent_id": values["agent.id"],
        "master_key_file": str(directory / Path(values["master_key_file"]).expanduser())
        if values["master_key_file"]
        else "",
        "master_key": values["master_key"],
        "zone": values["agent.zone"],
        "group": values["agent.group"],
        "agent": agent,
        "kafka": values.section("kafka"),
        "security": values.section("security"),
        "oauth": values.section("oauth"),
        "confirmations": values.section("confirmations"),
        "topics": values.section("topics"),
        "http": values.section("http"),
        "grpc": values.section("grpc"),
        "metrics": values.section("metrics"),
        "traces": values.section("traces"),
        "text": values.section("text"),
        "cache": values.section("cache"),
        "pipelines": values.section("pipelines"),
        "worker": values.section("worker"),
        "spark": values.section("spark", conf=_spark_conf(values)),
        "embedded": values.section("embedded"),
        "etcd": values.section("etcd"),
    }
    return values.build(lambda fixed: _serve_settings(given, fixed), _SERVE_NAMES)


def _optional_address(title: str, text: str) -> Address | None:
    return Address.parse(title, text) if text else None


def _spark_conf(values: _Values) -> dict[str, str]:
    nothing: dict[str, str] = {}
    return values.attempt(lambda: _pairs(values.title("spark.conf"), values["spark.conf"]), nothing)


def _serve_settings(given: Mapping[str, Any], fixed: Mapping[str, Any]) -> ServeSettings:
    changed = {_SERVE_FIELDS.get(name, name): value for name, value in fixed.items()}
    if "roles" in changed:
        changed["roles"] = ROLES
    return ServeSettings(**{**given, **changed})


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
    """Refuse malformed URLs before an engine is opened; errors carry no secret."""
    for name, parse in (("store", parse_store_url), ("objects", parse_objects_url)):
        try:
            parse(values[name])
        except (InvalidError, ValueError) as error:
            allowed = error.allowed if isinstance(error, InvalidError) else f"a URL ({error})"
            values.mistakes.append(InvalidError(values.title(name), redacted(values[name]), allowed))


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

"""Secrets of stored parts: redacted in what is shown, restored in what is saved.

The one rule: a secret leaves this package only on its way to the server it was given for. A part is shown with `REDACTED` in place
of a secret; a part that is saved with `REDACTED` keeps the stored secret, and only for the same user at the same server: otherwise
an editor could have the password sent to a server of their own.
"""

from typing import Any, Final, TypeVar
from urllib.parse import SplitResult

import msgspec

from holdfast.pipeline.model.definition import KafkaConfig, SchemaRegistry, StoredStruct
from holdfast.pipeline.model.query import QueryConfig, StreamSource
from holdfast.pipeline.model.redaction import (
    REDACTED,
    URLS,
    is_secret,
    redacted_options,
    redacted_url,
    secret_options,
    split,
    unsplit,
)
from holdfast.pipeline.model.secret_references import is_reference
from holdfast.vocabulary.errors import InvalidError

P = TypeVar("P", bound=msgspec.Struct)

_OPTIONS: Final = "catalog_options"
_CAMEL: Final = {"catalog_uri": "catalogUri"}


def redacted(part: P) -> P:
    """The part without its secrets."""
    changes: dict[str, Any] = {}
    if (password := getattr(part, "password", "")) and not is_reference(password):
        changes["password"] = REDACTED
    for name in URLS:
        if isinstance(text := getattr(part, name, None), str):
            changes[name] = redacted_url(text)
    if isinstance(options := getattr(part, _OPTIONS, None), dict):
        changes[_OPTIONS] = redacted_options(options)
    for field in part.__struct_fields__:
        if isinstance(inner := getattr(part, field), StoredStruct) and field not in changes:
            changes[field] = redacted(inner)
    if isinstance(part, QueryConfig):
        changes["sources"] = tuple(map(redacted, part.sources))
    return msgspec.structs.replace(part, **changes) if changes else part


def restored(given: P, stored: msgspec.Struct | None) -> P:
    """The part to save, with the stored secret for each `REDACTED`. `InvalidError` if there is none for this server and user."""
    changes: dict[str, Any] = {}
    if isinstance(given, KafkaConfig) and given.security.password == REDACTED:
        changes["security"] = msgspec.structs.replace(given.security, password=_kafka_password(given, stored))
    if isinstance(given, KafkaConfig):
        before = stored.schema_registry if isinstance(stored, KafkaConfig) else SchemaRegistry()
        changes["schema_registry"] = _restored_registry("source", given.schema_registry, before)
    if isinstance(given, QueryConfig):
        changes["sources"] = _restored_sources(given, stored)
    for name in URLS:
        text = getattr(given, name, None)
        if isinstance(text, str) and REDACTED in text:
            known = getattr(stored, name, None) if type(stored) is type(given) else None
            changes[name] = _restored_url(f"sink.{_CAMEL.get(name, name)}", text, known)
    if REDACTED in (getattr(given, _OPTIONS, None) or {}).values():
        changes[_OPTIONS] = _restored_options(given, stored)
    return msgspec.structs.replace(given, **changes) if changes else given


def _restored_options(given: msgspec.Struct, stored: msgspec.Struct | None) -> dict[str, str]:
    """Secret options of the same catalog. One that names other servers must bring its own."""
    options: dict[str, str] = getattr(given, _OPTIONS)
    before: dict[str, str] = getattr(stored, _OPTIONS, {}) if type(stored) is type(given) else {}
    plain = {name: value for name, value in options.items() if not is_secret(name)}
    same = plain == {name: value for name, value in before.items() if not is_secret(name)}
    same &= all(
        redacted_url(getattr(given, name, "")) == redacted_url(getattr(stored, name, ""))
        for name in ("catalog_uri", "catalog")
    )
    for name, value in options.items():
        if value == REDACTED and (not same or not before.get(name)):
            allowed = "the secret itself: none is stored for this catalog with these options"
            raise InvalidError(f"sink.catalogOptions.{name}", REDACTED, allowed)
    return {name: before[name] if value == REDACTED else value for name, value in options.items()}


def _kafka_password(given: KafkaConfig, stored: msgspec.Struct | None) -> str:
    if not isinstance(stored, KafkaConfig) or not stored.security.password:
        raise InvalidError("source.security.password", REDACTED, "the password itself: none is stored")
    same = (given.security.username, set(given.brokers) - set(stored.brokers)) == (stored.security.username, set())
    if not same:
        allowed = "the password itself: the stored one is for other brokers or another user"
        raise InvalidError("source.security.password", REDACTED, allowed)
    return stored.security.password


def _restored_sources(given: QueryConfig, stored: msgspec.Struct | None) -> tuple[StreamSource, ...]:
    """Each with the secrets of the one that had its name."""
    before = {each.name: each.schema_registry for each in stored.sources} if isinstance(stored, QueryConfig) else {}
    return tuple(
        msgspec.structs.replace(
            source,
            schema_registry=_restored_registry(
                f"query.sources[{at}]", source.schema_registry, before.get(source.name, SchemaRegistry())
            ),
        )
        for at, source in enumerate(given.sources)
    )


def _restored_registry(where: str, given: SchemaRegistry, stored: SchemaRegistry) -> SchemaRegistry:
    if REDACTED in given.url:
        given = msgspec.structs.replace(given, url=_restored_url(f"{where}.schemaRegistry.url", given.url, stored.url))
    if given.password != REDACTED:
        return given
    if not stored.password or (given.url, given.user) != (stored.url, stored.user):
        allowed = "the password itself: none is stored for this registry and user"
        raise InvalidError(f"{where}.schemaRegistry.password", REDACTED, allowed)
    return msgspec.structs.replace(given, password=stored.password)


def _restored_url(name: str, text: str, stored: str | None) -> str:
    parts, before = split(text), split(stored or "")
    if parts is None:
        raise InvalidError(name, redacted_url(text), "a URL")
    asked = [option for option, value in secret_options(parts) if value == REDACTED]
    if parts.password != REDACTED and not asked:
        return text
    if before is None or (parts.password == REDACTED and not before.password):
        raise InvalidError(name, redacted_url(text), "the secret itself: none is stored")
    if _destination(parts) != _destination(before):
        raise InvalidError(name, redacted_url(text), "the secret itself: the stored one is for another server or user")
    kept = dict(secret_options(before))
    if missing := [option for option in asked if option not in kept]:
        raise InvalidError(f"{name} option {missing[0]}", REDACTED, "the secret itself: none is stored")
    netloc = before.netloc if parts.password == REDACTED else parts.netloc
    return unsplit(parts, netloc, {option: kept[option] for option in asked})


def _destination(parts: SplitResult) -> tuple[object, ...]:
    return parts.scheme, parts.username, parts.hostname, parts.port

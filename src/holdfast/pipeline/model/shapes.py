"""JSON objects as structs, with every field that is unknown, missing or of the wrong type reported at once.

The one rule: a struct always comes back. A field that could not be read has its default, or is blank where there is none, so that
the values of the other fields can be checked in the same pass. Values of fields that may hold a secret are never repeated.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from holdfast.pipeline.model.errors import MissingFieldError, Mistakes, UnknownFieldError
from holdfast.pipeline.model.redaction import URLS
from holdfast.vocabulary.errors import InvalidError

S = TypeVar("S", bound=msgspec.Struct)

_SECRETS: Final = frozenset({"password", "security", "catalogUri", *URLS})
_CHARS_SHOWN_MAX: Final = 100
_WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def read_object(where: str, given: Any) -> dict[str, Any]:
    """The object of a JSON text, or of the same decoded. `InvalidError`."""
    try:
        value = msgspec.json.decode(given) if isinstance(given, bytes | str) else given
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError(where, "text", f"JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidError(where, json_kind(value), "an object")
    return dict(value)


def read_struct(where: str, given: Any, kind: type[S], mistakes: Mistakes) -> S:
    """The struct of a JSON object; what does not fit is added to `mistakes`, each with its place below `where`."""
    if not isinstance(given, Mapping):
        mistakes.add(InvalidError(where, json_kind(given), "an object"))
        given = {}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    tag = kind.__struct_config__.tag_field
    for name in given:
        if name not in fields and name != tag:
            mistakes.add(UnknownFieldError(f"{where}.{str(name)[:_CHARS_SHOWN_MAX]}", tuple(fields)))
    values = {}
    for name, field in fields.items():
        value: Any = msgspec.UNSET
        if name in given:
            value = _value(f"{where}.{name}", given[name], field.type, mistakes)
        elif field.required:
            mistakes.add(MissingFieldError(f"{where}.{name}"))
        if value is not msgspec.UNSET:
            values[field.name] = value
        elif field.required:
            values[field.name] = _blank(field.type)
    return kind(**values)


def _value(where: str, given: Any, kind: Any, mistakes: Mistakes) -> Any:
    """The value, or `UNSET`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return read_struct(where, given, kind, mistakes)
    if get_origin(kind) is tuple and isinstance(given, list | tuple):
        element = get_args(kind)[0]
        items = [_value(f"{where}[{at}]", each, element, mistakes) for at, each in enumerate(given)]
        return tuple(_blank(element) if item is msgspec.UNSET else item for item in items)
    try:
        return msgspec.convert(given, kind)
    except (msgspec.MsgspecError, RecursionError):
        mistakes.add(InvalidError(where, _shown(where, given), _expected(kind)))
        return msgspec.UNSET


def _blank(kind: Any) -> Any:
    return () if get_origin(kind) is tuple else ""


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"an array, each element {_expected(get_args(kind)[0])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "an object"
    if kind in _WORDS:
        return _WORDS[kind]
    return " or ".join(map(_expected, get_args(kind))) or str(kind)


def _shown(where: str, given: Any) -> Any:
    """The value for the message, as far as it is short and no secret."""
    if not _SECRETS.isdisjoint(where.split(".")) or isinstance(given, Mapping | list | tuple):
        return json_kind(given)
    return given[:_CHARS_SHOWN_MAX] if isinstance(given, str) else given


def json_kind(value: Any) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str() | bytes():
            return "text"
        case Mapping():
            return "an object"
    return "an array"

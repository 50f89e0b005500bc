"""Settings: frozen values per package, validated at construction.

A settings class is a frozen dataclass whose `__post_init__` calls the checks below. `settings_from` builds one from
strings (flags, environment, files); only the command line reads the environment.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Final, TypeVar, get_type_hints

import msgspec

from holdfast.vocabulary.errors import InvalidError

KIB: Final = 1024
MIB: Final = 1024 * KIB

S = TypeVar("S")


def check_at_least(what: str, value: float, minimum: float) -> None:
    """Refuse a value below `minimum`."""
    if value < minimum:
        raise InvalidError(what, value, f"at least {minimum}")


def check_between(what: str, value: float, minimum: float, maximum: float) -> None:
    """Refuse a value outside [minimum, maximum]."""
    if not minimum <= value <= maximum:
        raise InvalidError(what, value, f"between {minimum} and {maximum}")


def check_one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not in the list."""
    if value not in allowed:
        raise InvalidError(what, value, "one of " + ", ".join(allowed))


def settings_from(kind: type[S], given: Mapping[str, object]) -> S:
    """Build settings of `kind` from text or typed values; an unknown name or an unreadable value is an `InvalidError`."""
    if not is_dataclass(kind):
        raise InvalidError("settings class", kind, "a dataclass")
    kinds = _field_types(kind)
    typed = {}
    for name, value in given.items():
        if name not in kinds:
            raise InvalidError("setting", name, "one of " + ", ".join(sorted(kinds)))
        try:
            typed[name] = msgspec.convert(value, type=kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise InvalidError(name, value, str(error).partition(" - at ")[0].lower()) from None
    return kind(**typed)


@cache
def _field_types(kind: type) -> dict[str, object]:
    """The type of each field. Cached: resolving the hints takes longer than everything else here."""
    return get_type_hints(kind)

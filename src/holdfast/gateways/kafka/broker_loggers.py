"""The levels of this node's loggers, under the names of Python's modules: read and changed while it runs, until it stops.

Levels are Kafka's words for Python's: WARN is WARNING, FATAL is CRITICAL, and TRACE, which Python has not, is DEBUG. The one rule:
a request changes all loggers that it names, or none.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.gateways.kafka.config_names import ConfigEntry
from holdfast.gateways.kafka.errors import ApiError
from holdfast.kafka.enums import AlterConfigOperation, ConfigType
from holdfast.kafka.error_codes import ErrorCode

ROOT: Final = "holdfast"
_LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}
_TEXT: Final = "The level from which on messages are logged: " + ", ".join(_LEVELS) + "."


def logger_entries() -> tuple[ConfigEntry, ...]:
    """Every logger of ours, with the level that counts for it."""
    return tuple(ConfigEntry(name, _level(name), ConfigType.STRING, _TEXT, is_set=True) for name in _names())


def alter_loggers(configs: Iterable[Any], *, validate_only: bool) -> None:
    """Set levels, or have loggers follow the one above them again. `ApiError`."""
    levels: dict[str, int] = {}
    known = _names()
    for each in configs:
        if each.name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"unknown logger {each.name[:80]!r}: DescribeConfigs lists them")
        if each.config_operation == AlterConfigOperation.DELETE:
            if each.name == ROOT:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"the level of {ROOT!r} cannot be removed: SET it")
            levels[each.name] = logging.NOTSET
        elif each.config_operation != AlterConfigOperation.SET:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a level is set or deleted: it is no list")
        elif each.value not in _LEVELS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"invalid level {str(each.value)[:80]!r}: must be one of {', '.join(_LEVELS)}"
            )
        else:
            levels[each.name] = _LEVELS[each.value]
    if not validate_only:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _names() -> list[str]:
    existing = (name for name, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger))
    return sorted({ROOT, *(name for name in existing if name.startswith(f"{ROOT}."))})


def _level(name: str) -> str:
    effective = logging.getLogger(name).getEffectiveLevel()
    return next((word for word, level in _LEVELS.items() if effective >= level), "TRACE")

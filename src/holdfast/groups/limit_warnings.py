"""Warnings of groups that reach a limit. The one rule: a group that reaches it again and again is logged once a minute.

A limit of all groups together is logged once a minute, whichever group reaches it: clients invent any number of names.
"""

import logging
from typing import Final

from holdfast.groups.errors import LimitReached
from holdfast.vocabulary.clock import Clock

_log: Final = logging.getLogger(__name__)

_EVERY_MS: Final = 60_000
_KEPT_MAX: Final = 1_000
_OF_ALL_GROUPS: Final = frozenset({"memory_bytes_max"})


class LimitWarnings:
    """What was logged lately, by group and setting."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_ms: dict[tuple[str, str], int] = {}

    def warn(self, group_id: str, limit: LimitReached, consequence: str) -> None:
        """Log it, unless that was done within the last minute."""
        now_ms = self._clock.boot_ms()
        kind = "" if limit.setting in _OF_ALL_GROUPS else group_id, limit.setting
        logged_ms = self._logged_ms.get(kind)
        if logged_ms is not None and now_ms - logged_ms < _EVERY_MS:
            return
        self._logged_ms.pop(kind, None)
        self._logged_ms[kind] = now_ms
        if len(self._logged_ms) > _KEPT_MAX:
            del self._logged_ms[next(iter(self._logged_ms))]
        _log.warning("group %r: %s (%s)", group_id, consequence, limit)

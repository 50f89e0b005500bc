"""What a worker logs about its pipelines: by name, each change of state once, with its reason."""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.pipeline.catalog.worker_status import SlotState
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.workers.slot_run import SlotRun

_log: Final = logging.getLogger(__name__)
_LEVELS: Final[Mapping[SlotState, int]] = {"blocked": logging.WARNING, "failed": logging.ERROR}


class RunLog:
    """Of one worker under one session."""

    def __init__(self) -> None:
        self._started: dict[str, str] = {}

    def pipelines(self, started: Mapping[str, Pipeline], slots: Mapping[str, int], *, stopping: bool) -> None:
        """Pipelines that were started or stopped."""
        for pipeline_id in started.keys() - self._started.keys():
            _log.info("pipeline %s: started, slots: %d", started[pipeline_id].name, slots.get(pipeline_id, 0))
        if not stopping:
            for pipeline_id in self._started.keys() - started.keys():
                _log.info("pipeline %s: stopped", self._started[pipeline_id])
        self._started = {pipeline_id: pipeline.name for pipeline_id, pipeline in started.items()}

    def state(self, run: SlotRun, *, retry: str = "") -> None:
        """A run whose state, or the reason for it, has changed. `retry`: when a failed one is retried."""
        state: SlotState = "blocked" if run.blocked else run.state
        reason = run.blocked or run.reason
        if (state, reason) == run.logged:
            return
        because = f": {reason}" if reason else ""
        later = f"; retrying {retry}" if retry else ""
        level = _LEVELS.get(state, logging.INFO)
        _log.log(level, "%s: %s → %s%s%s", run.title, run.logged[0], state, because, later)
        run.logged = state, reason

    def partitions(self, run: SlotRun) -> None:
        """A run whose partitions have changed."""
        _log.info("%s: partitions %s", run.title, compact(run.held))


def compact(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    parts: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1] = parts[-1][0], number
        else:
            parts.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts) or "none"

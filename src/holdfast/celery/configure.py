"""What a Celery app needs so that no task is lost or run twice: settings that a transport cannot set by itself.

The one rule: nothing that the app's author has set otherwise is changed; he is told.
"""

import logging
from typing import Any, Final

from celery.signals import celeryd_init

_log: Final = logging.getLogger(__name__)

REQUIRED: Final[dict[str, tuple[object, str]]] = {
    "task_acks_late": (True, "a worker that is killed loses the tasks it runs"),
    "task_reject_on_worker_lost": (True, "a task whose process is killed is not run again"),
    "worker_prefetch_multiplier": (1, "urgent tasks wait behind those that a worker has taken in advance"),
}


def configure(app: Any, **transport_options: object) -> None:
    """Set what is required, and `broker_transport_options`. Call it after the app's own configuration."""
    changed = app.conf.changes if hasattr(app.conf, "changes") else {}
    for name, (value, _) in REQUIRED.items():
        if name not in changed or app.conf[name] == value:
            app.conf[name] = value
    if transport_options:
        app.conf.broker_transport_options = {**(app.conf.broker_transport_options or {}), **transport_options}
    warn(app)


def warn(app: Any) -> list[str]:
    """Log what is set otherwise; the names."""
    wrong = [name for name, (value, _) in REQUIRED.items() if app.conf[name] != value]
    for name in wrong:
        value, why = REQUIRED[name]
        _log.warning("%s is %r and should be %r: %s", name, app.conf[name], value, why)
    return wrong


@celeryd_init.connect  # type: ignore[untyped-decorator]
def _at_start(conf: Any = None, instance: Any = None, **_: Any) -> None:
    app = getattr(instance, "app", None)
    if app is not None and str(app.conf.broker_url or "").startswith("holdfast://"):
        warn(app)

"""What a worker is told: that the lease of a task is lost. The task is terminated where the pool can do that. And what Celery's
signals tell of a task: that its greenlet was killed.

    @lease_lost.connect
    def told(sender, message_id, reason, request, **_): ...

The one rule: its ack would be refused anyhow; terminating it only saves work, and effects, of a task that another worker has.
"""

import logging
import sys
from typing import Any, Final

from celery.signals import task_postrun, worker_ready
from celery.utils.dispatch import Signal

from holdfast.celery.messages import delivery_tag
from holdfast.heaps.message import Message

_log: Final = logging.getLogger(__name__)

lease_lost: Final = Signal(name="lease_lost", providing_args={"message_id", "reason", "request"})
"""Sent by the worker with the id of the message, the reason, and Celery's request if the task runs."""

_pools: dict[str, Any] = {}
_killed: set[str] = set()


@worker_ready.connect  # type: ignore[untyped-decorator]
def _remember_pool(sender: Any = None, **_: Any) -> None:
    _pools["pool"] = getattr(sender, "pool", None)


@task_postrun.connect  # type: ignore[untyped-decorator]
def _note_killed(task: Any = None, task_id: str = "", **_: Any) -> None:
    greenlet, state = sys.modules.get("greenlet"), sys.modules.get("celery.worker.state")
    if greenlet is None or state is None or not isinstance(sys.exc_info()[1], greenlet.GreenletExit):
        return
    tag = task.request.get("holdfast_lease")
    if tag and task.acks_late and task_id not in state.revoked:
        _killed.add(tag)


def was_killed(tag: str) -> bool:
    """Whether the greenlet of a task was killed, and nobody has revoked the task. Celery acknowledges it all the same."""
    if tag not in _killed:
        return False
    _killed.discard(tag)
    return True


def task_lost(message: Message, reason: str) -> None:
    """Tell everybody, and stop the task. On the thread of the worker's loop."""
    request = _running(delivery_tag(message))
    what = f"task {request.name}[{request.id}]" if request is not None else f"message {message.id}"
    _log.warning("the lease of %s (queue %s) is lost, its acknowledgement is refused: %s", what, message.topic, reason)
    lease_lost.send(sender="holdfast.celery", message_id=message.id, reason=reason, request=request)
    pool = _pools.get("pool")
    if request is None or pool is None:
        return
    try:
        request.cancel(pool, emit_retry=False)
        _log.warning("%s was terminated", what)
    except (NotImplementedError, OSError, AttributeError) as error:  # threads cannot be
        _log.warning("%s cannot be terminated in this pool and goes on: %s", what, error or type(error).__name__)


def _running(tag: str) -> Any:
    state = sys.modules.get("celery.worker.state")
    if state is None:
        return None
    requests = list(state.active_requests)
    return next((request for request in requests if str(request.message.delivery_tag) == tag), None)

"""Celery on heaps: a transport of Kombu for `holdfast://` that never runs a task twice because it takes long.

    import holdfast.celery

    app = Celery("shop", broker="holdfast://localhost:9092")
    holdfast.celery.configure(app)

A task is leased from its delivery to its acknowledgement, and the lease is renewed on a thread of its own: there is no visibility
timeout to outrun. docs/how-to/celery.md.
"""

from kombu.transport import TRANSPORT_ALIASES

from holdfast.celery.configure import configure
from holdfast.celery.signals import lease_lost
from holdfast.celery.transport import Transport

__all__ = ["Transport", "configure", "lease_lost"]

TRANSPORT_ALIASES["holdfast"] = "holdfast.celery:Transport"

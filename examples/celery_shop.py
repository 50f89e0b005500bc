"""A shop's tasks on Celery, with Holdfast as the broker: urgent ones first, delayed ones in time, long ones once.

Start a server, workers (as many as you like), and send some tasks:

    holdfast serve --data ./data
    cd examples && celery -A celery_shop worker
    python examples/celery_shop.py

Kill a worker while it makes a report: another one makes it after `lease` seconds. Let it live, and nobody else gets the report,
however long it takes: there is no visibility timeout.
"""

import sys
import time

from celery import Celery

import holdfast.celery

app = Celery("celery_shop", broker="holdfast://127.0.0.1:9092")  # or the environment's CELERY_BROKER_URL
holdfast.celery.configure(app, lease=10)


@app.task
def greet(name: str) -> None:
    """A quick one."""
    print(f"hello {name}", flush=True)


@app.task
def report(seconds: float) -> None:
    """A slow one: longer than several leases, if you like."""
    time.sleep(seconds)
    print(f"report made in {seconds:g} s", flush=True)


def main(seconds: float) -> None:
    """Send one of each kind."""
    report.delay(seconds)
    greet.apply_async(("somebody",), priority=1)
    greet.apply_async(("the boss",), priority=200)
    greet.apply_async(("later",), countdown=2)
    print("sent: they are durable")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 25)

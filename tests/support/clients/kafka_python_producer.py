"""A producer that runs kafka-python, as a process: `python kafka_python_producer.py SETTINGS`, the settings as JSON.

It sends a workload and says `begun` once the first are acknowledged, `done` when all are, or `failed`. A process of its
own because the client forgets to close the socket of each connection that is refused, and Python complains of it.
"""

import json
import sys
from typing import Any

from kafka.errors import KafkaError
from tests.support.clients.events import say
from tests.support.workload import keyed

from kafka import KafkaProducer

BEGUN = 200


def main(settings: dict[str, Any]) -> None:
    producer = KafkaProducer(
        bootstrap_servers=settings["bootstrap"],
        enable_idempotence=True,
        batch_size=settings["batch_size"],
        request_timeout_ms=5_000,
        retry_backoff_ms=50,
        reconnect_backoff_max_ms=200,
        max_block_ms=60_000,
    )
    futures = []
    try:
        for item in keyed(settings["count"], keys=settings["keys"]):
            futures.append(producer.send(settings["topic"], item.value, item.key))
            if len(futures) == BEGUN:
                futures[-1].get(60)
                say("begun")
        for future in futures:
            future.get(60)
    except KafkaError as failure:
        say("failed", error=repr(failure))
    else:
        say("done", count=len(futures))
    producer.close(timeout=10)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""The Java client: a default producer and consumers go on while the broker is killed, stopped and paused.

A new life of the broker leads with a new epoch, so a consumer asks where the old one ended before it reads on.
"""

import json
import subprocess
import threading

import pytest
from tests.support.broker import Broker
from tests.support.clients.java import runner

from holdfast.vocabulary.errors import UnavailableError

RECORDS = 3_000
PAUSE_S = 6  # longer than the producer waits for an answer: it sends again what it has sent


@pytest.mark.timeout(240)
def test_a_producer_and_its_consumers_outlive_the_broker(own_broker: Broker) -> None:
    try:
        argv = runner.command("conformance.Restarted")
    except UnavailableError as missing:
        pytest.skip(str(missing))
    topic = own_broker.create_topic("restarted", 4)
    argv += [own_broker.bootstrap, topic, own_broker.unique("restarted"), str(RECORDS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        try:
            told(client.stdout.readline(), "acknowledged")
            own_broker.restart()
            told(client.stdout.readline(), "acknowledged")
            own_broker.terminate()
            own_broker.start()
            told(client.stdout.readline(), "acknowledged")
            own_broker.stop()
            threading.Event().wait(PAUSE_S)
            own_broker.cont()
            *_, last = client.stdout.readlines()
        finally:
            client.kill()
    found = json.loads(last)
    wanted = {"acknowledged": RECORDS, "failures": "[]", "steady": RECORDS, "in_order": True, "forgetful": RECORDS}
    assert found == wanted


def told(line: str, word: str) -> None:
    assert line.startswith(word), line

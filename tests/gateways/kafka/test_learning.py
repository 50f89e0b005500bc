"""kio is imported late, and may be wanted by the first client while another thread still imports it."""

import subprocess
import sys

RACE = """
import sys, threading
from holdfast.gateways.kafka.control import decode, learn
failures = []

def client():
    while "kio.serial" not in sys.modules:  # the other thread is in the middle of it
        pass
    try:
        decode(18, 0, memoryview(b""))
    except BaseException as error:
        failures.append(repr(error))

def beside():
    try:
        learn()
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=run) for run in (client, beside)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failures) or 0)
"""


def test_a_client_that_comes_while_kio_is_imported_waits_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

"""kio is imported late, and may be wanted by the first client while another thread still imports it."""

import subprocess
import sys

RACE = """
import sys, threading
from holdfast.gateways.kafka.control import decode, learn
failures, begun, answered = [], threading.Event(), threading.Event()

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "kio.serial":  # just begun: the worst moment for a client to come
            begun.set()
            answered.wait(0.5)

def client():
    begun.wait()
    decode(18, 0, memoryview(b""))
    answered.set()

def run(step):
    try:
        step()
    except BaseException as error:
        failures.append(repr(error))

sys.meta_path.insert(0, Pause())
threads = [threading.Thread(target=run, args=(step,)) for step in (client, learn)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit("; ".join(failures) or 0)
"""


def test_a_client_that_comes_while_kio_is_imported_waits_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

"""What a task's process keeps for its next tasks."""

import subprocess
import sys

PROGRAM = """
import gc
from holdfast.spark.worker_memory import retain_freed_memory, freeze_loaded_objects

class Loop: pass

gc.disable()
loop = Loop()
loop.itself = loop
del loop
retain_freed_memory()
freeze_loaded_objects()
kept = gc.get_freeze_count()
assert kept > 1_000, kept
assert not any(isinstance(each, Loop) for each in gc.get_objects())
gc.unfreeze()
assert not any(isinstance(each, Loop) for each in gc.get_objects()), "garbage is not for ever"
gc.freeze()
more = [[] for _ in range(10_000)]
freeze_loaded_objects()
assert gc.get_freeze_count() < kept + 10_000, "once is enough"
print("kept")
"""


def test_objects_loaded_by_the_first_task_are_excluded_from_garbage_collection() -> None:
    """In a process of its own: it is for the rest of its life."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr

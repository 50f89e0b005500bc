"""The C programs of the benchmarks, compiled where it runs and kept until their source changes.

Needs a C compiler named `cc`; who has none gets `NoCompilerError` and measures with a client in Python, which says so.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

SOURCES: Final = Path(__file__).parent
KEPT: Final = SOURCES.parent.parent / ".cache" / "bench"


class NoCompilerError(Exception):
    """There is no C compiler, or it refuses."""


@cache
def librdkafka() -> Path:
    """The shared library in confluent-kafka's wheel."""
    import confluent_kafka

    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (found,) = beside.glob("librdkafka*.so*")
    return found


@cache
def compiled(name: str, sources: Path = SOURCES) -> Path:
    """The program made of `name`.c in `sources`, linked with librdkafka where it is."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("there is no program cc")
    source, library = sources / f"{name}.c", librdkafka()
    argv = [
        compiler,
        "-O2",
        "-D_GNU_SOURCE",
        "-std=gnu11",
        "-pthread",
        str(source),
        str(library),
        f"-Wl,-rpath,{library.parent}",
    ]
    read = b"".join(each.read_bytes() for each in (source, *sorted(sources.glob("*.h"))))
    key = hashlib.sha256(read + " ".join(argv).encode()).hexdigest()[:16]
    program = KEPT / f"{name}-{key}"
    if not program.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as made:
            done = subprocess.run([*argv, "-o", f"{made}/{name}"], capture_output=True, text=True)
            if done.returncode != 0:
                raise NoCompilerError(f"{source.name}: {done.stderr[-1000:]}")
            Path(made, name).rename(program)
    return program


def run_json(argv: list[str], *, timeout_s: float) -> dict[str, Any]:
    """Run to the end; the one line of JSON it prints. What it says on stderr is part of the error when it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(argv[0]).name} {' '.join(argv[1:4])} failed: {done.stderr[-300:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if answer.get("failed"):
        raise RuntimeError(
            f"{Path(argv[0]).name} {' '.join(argv[1:4])}: {answer['failed']} failed: {done.stderr[-300:]}"
        )
    return answer

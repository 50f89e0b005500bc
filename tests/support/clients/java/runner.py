"""Runs the Java part of the suite: compiles the sources once, and all wanted scenarios in one JVM.

Starting a JVM and its first connection takes longer than most scenarios, so the scenarios share one, and the workers of
a test run share what it found. The one rule: names come from the sources, so that collecting tests starts nothing.
"""

import base64
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.apache_kafka import TOOLS, VERSION, ToolRun, java_argv, kafka_classpath
from tests.support.broker import Broker
from tests.support.maven import default_cache
from tests.support.record_shapes import SHAPES

from holdfast.vocabulary.errors import UnavailableError

SOURCES = sorted((Path(__file__).parent / "conformance").glob("*.java"))
COMPILE_TIMEOUT_S = 120
RUN_TIMEOUT_S = 240

_SCENARIO = re.compile(r"@Scenario(?:\(\{?(?P<values>[^)]*?)\}?\))?\s+static void (?P<name>\w+)\(")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a scenario: "passed", "failed" or "skipped", with the trace or the reason."""

    outcome: str
    detail: str


def scenarios() -> list[str]:
    """Every scenario as `name` or `name[value]`."""
    found = []
    for source in SOURCES:
        for match in _SCENARIO.finditer(source.read_text()):
            values = re.findall(r'"([^"]*)"', match["values"] or "")
            found += [f"{match['name']}[{value}]" for value in values] or [match["name"]]
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process at a time, for the body."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compiled() -> Path:
    """The folder of classes of the sources as they are now. Raises UnavailableError without javac or the jars."""
    javac = shutil.which("javac")
    if javac is None:
        raise UnavailableError("java", "there is no program javac")
    content = hashlib.sha256(VERSION.encode() + b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    folder = default_cache().parent / "java" / content
    with locked(folder.parent / "lock"):
        if not folder.exists():
            made = folder.with_suffix(".part")
            argv = [javac, "-Xlint:all,-processing,-try", "-Werror", "-cp", kafka_classpath(), "-d", str(made)]
            done = subprocess.run(
                [*argv, *map(str, SOURCES)], capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S
            )
            assert done.returncode == 0, f"the Java sources do not compile:\n{done.stdout}{done.stderr}"
            made.rename(folder)
    return folder


def command(main_class: str, *args: str, heap: str = "256m", log_level: str = "error") -> list[str]:
    """The command line of a class of ours."""
    argv = java_argv(
        main_class, *args, jvm=[f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"], log_level=log_level
    )
    at = argv.index("-cp") + 1
    argv[at] = os.pathsep.join([str(compiled()), argv[at]])
    return argv


def run(broker: Broker, names: Iterable[str], folder: Path) -> dict[str, Result]:
    """Run these scenarios, side by side, against the broker; `folder` takes the table of shapes and stderr."""
    shapes = folder / "shapes.json"
    shapes.write_text(
        json.dumps([_plain(shape.key, shape.value, shape.headers, shape.timestamp_ms) for shape in SHAPES])
    )
    argv = command("conformance.Main", broker.bootstrap, broker.kind, str(shapes), heap="1g", log_level="warn")
    done = subprocess.run(argv, input="\n".join(names), capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    (folder / "stderr.txt").write_text(done.stderr)
    assert done.returncode == 0, f"the scenarios ended with {done.returncode}: {done.stderr[-4_000:]}"
    found = (json.loads(line) for line in done.stdout.splitlines())
    return {each["name"]: Result(each["outcome"], each["detail"]) for each in found}


def _plain(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp_ms: int | None
) -> dict[str, object]:
    return {
        "key": _text(key),
        "value": _text(value),
        "headers": [[name, _text(content)] for name, content in headers],
        "timestamp_ms": timestamp_ms,
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


class Tools:
    """One JVM that runs Kafka's tools one after another; each would take seconds to start on its own."""

    def __init__(self) -> None:
        argv = command("conformance.Tools")
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, tool: str, *args: str, stdin: str = "") -> ToolRun:
        """Like `kafka_tool`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        main_class = TOOLS.get(tool, f"org.apache.kafka.tools.{tool}")
        self._process.stdin.write(json.dumps({"main": main_class, "args": args, "stdin": stdin}) + "\n")
        self._process.stdin.flush()
        return ToolRun(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the JVM, whatever it is doing."""
        self._process.kill()
        self._process.communicate()


def member_command(settings: Mapping[str, object]) -> tuple[list[str], None]:
    """A member of a group as `group_members.started` wants it."""
    return command("conformance.Member", json.dumps(settings), heap="128m"), None

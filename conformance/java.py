"""Java programs of the ecosystem: jars by `mvn`, a command line, and programs of ours that print one case per line."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.apache_kafka import VERSION
from tests.support.maven import fetch_jars

from conformance.model import Case, Outcome
from conformance.programs import build, kill, require, started

KAFKA: Final = VERSION
LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
COMPILE_TIMEOUT_S: Final = 600
SOURCES: Final = Path(__file__).parent / "java"


def classpath(cache: Path, name: str, artifacts: Sequence[str]) -> str:
    """The jars of `artifacts` and of all they need."""
    require("java", used_for="to run it")
    require("mvn", used_for="to fetch it")
    return os.pathsep.join(str(jar) for jar in fetch_jars(name, artifacts, cache=cache / "jars"))


def compiled(cache: Path, program: str, jars: str) -> str:
    """The class path of a program of ours, `java/PROGRAM.java`, and what it needs; compiled once."""
    source = SOURCES / f"{program}.java"
    made = cache / f"{program}-{hashlib.sha256(source.read_bytes() + jars.encode()).hexdigest()[:12]}"
    if not made.exists():
        javac = require("javac", used_for=f"to compile {source.name}")
        part = made.with_suffix(".part")
        argv = [javac, "-nowarn", "-cp", jars, "-d", str(part), str(source)]
        build(argv, cwd=cache, log=cache / "build.log", timeout_s=COMPILE_TIMEOUT_S)
        part.rename(made)
    return os.pathsep.join([str(made), jars])


def java(jars: str, main: str, *args: str, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command line of a class, or of a `.java` file; warnings go to stderr."""
    program = require("java", used_for="to run it")
    logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    return [program, f"-Xmx{heap}", "-XX:+UseSerialGC", *logging, *options, "-cp", jars, main, *args]


def properties(path: Path, settings: Mapping[str, object]) -> str:
    """Write the settings as Java reads them; returns the path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def reported(argv: Sequence[str], *, log: Path, cwd: Path, timeout_s: float) -> Iterator[Case]:
    """The cases that a program prints as JSON, one per line. One that begins and does not end has failed."""
    begun = ""
    with started(argv, log=log, cwd=cwd, piped=True) as process:
        timer = threading.Timer(timeout_s, kill, [process])
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("{"):
                with log.open("a") as kept:
                    kept.write(line)
                continue
            told = json.loads(line)
            begun = told["name"] if told["outcome"] == "begun" else ""
            if not begun:
                yield Case(told["name"], Outcome(told["outcome"]), told.get("detail", ""))
        code = process.wait()
        timer.cancel()
    if begun:
        yield Case(begun, Outcome.FAILED, f"the program ended with {code} before it did, or after {timeout_s:g} s")
    elif code != 0:
        yield Case("the program ends", Outcome.FAILED, f"exit code {code}")

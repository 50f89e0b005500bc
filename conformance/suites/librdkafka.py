"""librdkafka's own test suite, from the sources inside the crate `rdkafka-sys`: each test number in a process of its own."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.support.apache_kafka import VERSION, kafka_classpath

from conformance.model import Case, Outcome, Workplace
from conformance.programs import build, require, started

CRATE: Final = "4.10.0"  # its build metadata is librdkafka's version
KAFKA_VERSION: Final = "4.0.0"  # what the suite takes the broker for: record format 2 alone, current admin errors
BUILD_TIMEOUT_S: Final = 3600
TEST_TIMEOUT_S: Final = 900
TIMEOUT_MULTIPLIER: Final = 2
SPLIT: Final = "0081-admin"

_MANIFEST: Final = """[package]
name = "conformance"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
rdkafka-sys = "={}"
"""
_SCRIPTS: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-run-class.sh": "",
}
_TEST: Final = re.compile(r"^ +_TEST\((?P<name>\d{4}\w*),(?P<more>.*?)(?=^ +_TEST\(|\Z)", re.MULTILINE | re.DOTALL)
_LINE: Final = re.compile(r"^\| *(?P<name>\d{4}\w*) +\| +(?P<state>[A-Z_]+) +\| +[\d.]+s +\|(?P<why>.*)$")
_COLOR: Final = re.compile(r"\x1b\[[\d;]*m")


class Librdkafka:
    """A case is a test of its `test.c`. One that hangs or crashes harms only those of its own number."""

    name = "librdkafka"
    title = "librdkafka"
    flags: Sequence[str] = ("-p1", "-Q", "-L")
    about = (
        "The tests of its `tests` folder that need a broker, in quick mode (`-Q -L`), told that the broker is Kafka "
        f"{KAFKA_VERSION}, with {TIMEOUT_MULTIPLIER} times its time-outs, and four partitions "
        "per auto-created topic, as its own cluster has; its scenarios `default` and `noautocreate`. "
        f"Its `KAFKA_PATH` has the tools of Kafka {VERSION}. The many parts of `0081_admin` are run one by one: the first that "
        "fails would hide the others."
    )
    server_options: Sequence[str] = ("--set", "kafka.auto_create_partitions=4")  # as in its scenarios/default.json
    lists_cases = False

    def prepare(self, cache: Path) -> str:
        cache = _shared(cache)
        for program in ("make", "cc", "c++"):
            require(program, used_for="to build librdkafka")
        built, log = cache / f"built-{CRATE}", cache / "build.log"
        if not built.exists():
            sources = self._fetch(cache, log)
            made = cache / "building"
            shutil.rmtree(made, ignore_errors=True)
            shutil.copytree(sources, made)
            make = require("make", used_for="to build librdkafka")
            steps = [["./configure"], [make, "libs"], [make, "-C", "tests", "build"]]
            for argv in steps:
                build(argv, cwd=made, log=log, timeout_s=BUILD_TIMEOUT_S)
            java = [require("javac", used_for="to compile its Java clients"), "-nowarn", "-cp", kafka_classpath()]
            programs = [str(path) for path in sorted((made / "tests" / "java").glob("*.java"))]
            build([*java, "-d", "tests/java", *programs], cwd=made, log=log, timeout_s=BUILD_TIMEOUT_S)
            made.rename(built)
        kafka_classpath()
        return _version(built)

    def _fetch(self, cache: Path, log: Path) -> Path:
        """The crate's sources, where `cargo` puts them."""
        cargo = require("cargo", used_for="to fetch the sources of librdkafka")
        (cache / "Cargo.toml").write_text(_MANIFEST.format(CRATE))
        (cache / "lib.rs").write_text("")
        argv = [cargo, "vendor", "--quiet", "--versioned-dirs", "vendor"]
        build(argv, cwd=cache, log=log, timeout_s=BUILD_TIMEOUT_S)
        (found,) = (cache / "vendor").glob(f"rdkafka-sys-{CRATE}*")
        return found / "librdkafka"

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        folder = _shared(cache) / f"built-{CRATE}" / "tests"
        home = _kafka_home(at.scratch / "kafka")
        brokers = {"default": at.broker, "noautocreate": at.second_broker("--set", "kafka.auto_create_topics=false")}
        groups: dict[tuple[str, str], list[str]] = {}
        for name, scenario in tests((folder / "test.c").read_text()):
            groups.setdefault((scenario, name[:4]), []).append(name)
        # It aborts after its summary where threads are left, which would take the summary along.
        argv = [require("stdbuf", used_for="to read the summary"), "-oL", "./test-runner", *self.flags]
        for (scenario, number), names in groups.items():
            env = _environment(brokers[scenario].bootstrap, scenario, folder, home, at.scratch)
            for part in parts((folder / f"{SPLIT}.c").read_text()) if SPLIT.startswith(number) else [""]:
                chosen = {"TESTS": number, **({"SUBTESTS": f"{part}:"} if part else {})}
                output = _output(argv, folder, at.log, {**env, **chosen})
                for case in cases(output, names):
                    yield replace(case, name=f"{case.name}/{part}") if part else case


class IdempotentLibrdkafka(Librdkafka):
    """The same once more, every producer of it idempotent, as librdkafka's own releases are tested."""

    name = "librdkafka-idempotent"
    title = "librdkafka, idempotent"
    about = "The same tests once more with `-P`: every producer is idempotent."
    flags = (*Librdkafka.flags, "-P")


def _shared(cache: Path) -> Path:
    """One build for both suites."""
    shared = cache.with_name(Librdkafka.name)
    shared.mkdir(exist_ok=True)
    return shared


def _environment(bootstrap: str, scenario: str, folder: Path, home: Path, scratch: Path) -> dict[str, str]:
    """The environment of its test runner, with its settings in a file."""
    settings = scratch / f"{scenario}.conf"
    settings.write_text(
        f"metadata.broker.list={bootstrap}\ntest.timeout.multiplier={TIMEOUT_MULTIPLIER}\ntest.topic.random=true\n"
    )
    return {
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_SCENARIO": scenario,
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "BROKERS": bootstrap,
        "KAFKA_PATH": str(home),
        "LD_LIBRARY_PATH": os.pathsep.join(str(folder.parent / each) for each in ("src", "src-cpp")),
    }


def tests(source: str) -> list[tuple[str, str]]:
    """All tests in `test.c` that need a broker and no person, with their scenario. Those named `mock` bring a broker."""
    found = []
    for match in _TEST.finditer(source):
        name, more = match["name"], match["more"]
        if not name.endswith("_mock") and "TEST_F_LOCAL" not in more and "TEST_F_MANUAL" not in more:
            found.append((name, "noautocreate" if '"noautocreate"' in more else "default"))
    return found


def parts(source: str) -> list[str]:
    """The subtests in the source of a test."""
    _, *pieces = re.split(r"^(?:static void )?(do_test_\w+)\(", source, flags=re.MULTILINE)
    return [name for name, body in zip(pieces[::2], pieces[1::2], strict=True) if "SUB_TEST" in body]


def cases(output: str, names: Sequence[str]) -> Iterator[Case]:
    """What the summary says about each of `names`; without a line there, what was printed last."""
    lines = [_COLOR.sub("", line) for line in output.splitlines()]
    states = {match["name"]: match for line in lines if (match := _LINE.match(line))}
    for name in names:
        found = states.get(name)
        if found is None:
            yield Case(name, Outcome.FAILED, "no result: " + " ".join(lines[-3:]))
        elif found["state"] == "PASSED":
            yield Case(name, Outcome.PASSED)
        elif found["state"] == "SKIPPED":
            yield Case(name, Outcome.SKIPPED, found["why"].strip())
        else:
            yield Case(name, Outcome.FAILED, found["why"].strip() or found["state"].lower())


def _output(argv: Sequence[str], folder: Path, log: Path, env: dict[str, str]) -> str:
    """Everything it prints, up to its end or the end of its time."""
    with started(argv, cwd=folder, log=log, env=env, piped=True) as process:
        try:
            output, _ = process.communicate(timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired as late:
            text = late.stdout or b""
            output = text.decode(errors="replace") if isinstance(text, bytes) else text
            output += f"\nnot finished in {TEST_TIMEOUT_S} s"
    with log.open("a") as kept:
        kept.write(output)
    return output


def _kafka_home(home: Path) -> Path:
    """A folder that looks like Kafka's distribution as far as the suite uses it: scripts around the jars."""
    (home / "bin").mkdir(parents=True)
    run_class = f'exec java -Xmx256m -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:{kafka_classpath()}"'
    for name, main in _SCRIPTS.items():
        script = home / "bin" / name
        script.write_text(f'#!/bin/sh\n{run_class} {main} "$@"\n')
        script.chmod(0o755)
    return home


def _version(folder: Path) -> str:
    found = re.search(r"#define RD_KAFKA_VERSION +0x([0-9a-f]{8})", (folder / "src" / "rdkafka.h").read_text())
    assert found is not None
    digits = bytes.fromhex(found[1])
    return ".".join(str(each) for each in digits[:3])

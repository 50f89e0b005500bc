"""Durable files: whole or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.vocabulary import files
from holdfast.vocabulary.files import write_atomic


def test_a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    write_atomic(path, b"one")
    write_atomic(path, b"two", mode=0o600)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["identity"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "identity"
    write_atomic(path, b"one")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync_file", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"two")
    assert path.read_bytes() == b"one"
    assert [each.name for each in tmp_path.iterdir()] == ["identity"]


def test_data_is_synced_before_the_name_and_the_directory_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "identity", list[tuple[str, bool]]()

    def synced(descriptor: int) -> None:
        kind = "directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"  # noqa: PTH112
        steps.append((kind, path.exists()))

    monkeypatch.setattr(files, "sync_file", synced)
    write_atomic(path, b"one")
    assert steps == [("file", False), ("directory", True)]
    steps.clear()
    write_atomic(tmp_path / "cache", b"one", durable=False)
    assert steps == []


def test_an_unfinished_file_of_a_killed_process_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "identity.tmp").write_bytes(b"half")
    write_atomic(tmp_path / "identity", b"whole", unfinished="identity.tmp")
    assert [each.name for each in tmp_path.iterdir()] == ["identity"]


def test_concurrent_writers_of_one_file_leave_one_of_their_versions_whole(tmp_path: Path) -> None:
    bodies = [bytes([65 + n]) * 20_000 for n in range(4)]
    path = tmp_path / "file"
    path.write_bytes(bodies[0])

    def write(body: bytes) -> None:
        for _ in range(30):
            write_atomic(path, body, durable=False)
            assert path.read_bytes() in bodies

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, bodies))
    assert [each.name for each in tmp_path.iterdir()] == ["file"]

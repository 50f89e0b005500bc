"""The data directory: one process at a time, one name for ever, one cluster."""

from pathlib import Path

import pytest

from holdfast.app.data_directory import locked_data_directory, require_unlocked, write_text
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom


def test_an_id_is_generated_once(tmp_path: Path) -> None:
    with locked_data_directory(tmp_path / "a") as directory:
        name = directory.agent_id(SeededRandom(1))
        assert directory.agent_id(SeededRandom(2)) == name
    with locked_data_directory(tmp_path / "a") as directory:
        assert directory.agent_id(SeededRandom(3)) == name
    with locked_data_directory(tmp_path / "b") as directory:
        assert directory.agent_id(SeededRandom(4)) != name


def test_it_is_locked_by_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        locked_data_directory(tmp_path),
        pytest.raises(UnavailableError, match="in use by process"),
        locked_data_directory(tmp_path),
    ):
        pass
    with locked_data_directory(tmp_path):
        pass


def test_a_check_of_the_lock_creates_nothing(tmp_path: Path) -> None:
    require_unlocked(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with locked_data_directory(tmp_path / "new"), pytest.raises(UnavailableError, match="in use by process"):
        require_unlocked(tmp_path / "new")
    require_unlocked(tmp_path / "new")


def test_it_belongs_to_one_cluster(tmp_path: Path) -> None:
    with locked_data_directory(tmp_path) as directory:
        directory.bind_to_cluster("blue")
        directory.bind_to_cluster("blue")
        with pytest.raises(InvalidError, match="holds records of cluster blue"):
            directory.bind_to_cluster("green")


def test_a_damaged_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "agent-id").write_text("")
    with locked_data_directory(tmp_path) as directory, pytest.raises(CorruptError, match="empty"):
        directory.agent_id(SeededRandom(1))


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidError, match="data directory"), locked_data_directory(tmp_path / "file"):
        pass


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    write_text(path, "first")
    write_text(path, "second")
    assert [each.name for each in tmp_path.iterdir()] == ["addresses.json"]
    assert path.read_text() == "second"
    with pytest.raises(UnavailableError, match="addresses"):
        write_text(tmp_path / "missing" / "addresses.json", "third")

"""The data directory of one process: a lock, a name, and which cluster it belongs to. The WAL is below it, and by default the rest.

    lock          held by the process that uses the directory; the system lets go of it when that process dies, however it dies
    agent-id      drawn once, so that a node that comes back is the same node
    cluster-id    the cluster whose records the WAL holds: another store would not know them, and they would be thrown away
    wal/          the agent's write-ahead log
    store.db      the store, and
    objects/      object storage, unless a URL names others

Everything here blocks.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import Random

_LOCK: Final = "lock"
_AGENT_ID: Final = "agent-id"
_CLUSTER_ID: Final = "cluster-id"


class DataDirectory:
    """A directory this process has to itself. Made by `held`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def wal(self) -> Path:
        """Where the agent's write-ahead log is."""
        return self.path / "wal"

    def agent_id(self, random: Random) -> str:
        """The name of the agent that lives here, drawn at the first call of all."""
        return self._read(_AGENT_ID) or self._write(_AGENT_ID, f"agent-{random.token()[:10]}")

    def bind_to_cluster(self, cluster_id: str) -> None:
        """Remember the cluster; `InvalidError` if the directory belongs to another."""
        known = self._read(_CLUSTER_ID)
        if known and known != cluster_id:
            raise InvalidError(
                f"store (cluster {cluster_id})",
                f"data directory {self.path}",
                f"the store of cluster {known}, whose records this directory holds; give the right --store, "
                "or another --data",
            )
        if not known:
            self._write(_CLUSTER_ID, cluster_id)

    def _read(self, name: str) -> str:
        path = self.path / name
        try:
            known = path.read_text().strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise UnavailableError(f"file {path}", str(error)) from error
        if not known:
            raise CorruptError(f"file {path}", "it is empty")
        return known

    def _write(self, name: str, value: str) -> str:
        write_atomic(self.path / name, value + "\n")
        return value


@contextmanager
def locked_data_directory(path: Path) -> Iterator[DataDirectory]:
    """The directory, made if need be, for this process alone. `UnavailableError` names the process that has it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidError("data directory", str(path), f"a directory this user may write ({error.strerror})") from None
    try:
        _lock(descriptor, path)
        yield DataDirectory(path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
        raise UnavailableError(
            f"data directory {path}", f"process {holder} uses it; stop that one, or give this one a --data of its own"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that readers see all of it or nothing, and durably."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise UnavailableError(f"file {path}", error.strerror or str(error)) from error

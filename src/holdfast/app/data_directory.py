"""The data directory of one process: a lock, the agent's id, the cluster's id. The WAL is in it, and by default everything else.

    lock            held by the process that uses the directory; the operating system releases it when that process ends
    master-key      seals secrets in the store, unless a key is given
    agent-id        generated once, so that a restarted node is the same node
    cluster-id      the cluster whose records the WAL holds: another store would discard them
    addresses.json  where the server listened last
    wal/            the agent's write-ahead log
    store.db        the store, and
    objects/        object storage, unless other URLs are given
    clickhouse/     the embedded ClickHouse
    etcd/           with etcd:embedded: the member, which one it is (etcd-member.json), and its log (etcd.log)

The directory is for its owner alone (0700). Everything here blocks.
"""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.files import write_atomic
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

STORE: Final = "store.db"
ADDRESSES: Final = "addresses.json"
_LOCK: Final = "lock"
_AGENT_ID: Final = "agent-id"
_CLUSTER_ID: Final = "cluster-id"


class DataDirectory:
    """A directory locked by this process. Made by `locked_data_directory`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def wal(self) -> Path:
        """The agent's write-ahead log."""
        return self.path / "wal"

    def agent_id(self, random: Random) -> str:
        """The agent's id, generated at the first call."""
        return self._read(_AGENT_ID) or self._write(_AGENT_ID, f"agent-{random.token()[:10]}")

    def bind_to_cluster(self, cluster_id: str) -> None:
        """Record the cluster's id; `UsageError` if the directory belongs to another cluster."""
        known = self._read(_CLUSTER_ID)
        if known and known != cluster_id:
            raise UsageError(
                f"data directory {self.path} holds records of cluster {known}, but the store is that of cluster {cluster_id}: "
                "give the right --store, or another --data"
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
        write_text(self.path / name, value + "\n")
        return value


@contextmanager
def locked_data_directory(path: Path) -> Iterator[DataDirectory]:
    """The directory, created if missing, for this process alone. `UnavailableError` names the process that holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        _close_to_others(path)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidError("data directory", str(path), f"a writable directory ({error.strerror})") from None
    try:
        _lock(descriptor, path)
        yield DataDirectory(path)
    finally:
        os.close(descriptor)


def _close_to_others(path: Path) -> None:
    """What is in the directory is for its owner alone, also in one that was made before."""
    files = (path / name for name in (STORE, f"{STORE}-wal", f"{STORE}-shm", _AGENT_ID, _CLUSTER_ID, ADDRESSES))
    for each, mode in ((path, 0o700), *((file, 0o600) for file in files)):
        try:
            if each.stat().st_mode & 0o077:
                each.chmod(mode)
        except FileNotFoundError:
            continue
        except PermissionError:  # of a volume that somebody else has made for us
            _log.warning("%s is open to other users, and not ours to change", each)


def _lock(descriptor: int, path: Path) -> None:
    _flock(descriptor, path)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _flock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode(errors="replace") or "unknown"
        raise UnavailableError(
            f"data directory {path}", f"in use by process {holder}: stop it, or give another --data"
        ) from None


def require_unlocked(path: Path) -> None:
    """`UnavailableError` if another process holds the directory. Creates nothing: a directory that is missing is not locked."""
    try:
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _flock(descriptor, path)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically and durably; `UnavailableError` if that is impossible."""
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise UnavailableError(f"file {path}", error.strerror or str(error)) from error

"""A store from a backup file, in a new data directory.

The one rule: a restored store is another store. etcd gets a new cluster, with new ids, so that no member or client of the old one
takes it for its own; objects that were marked since the backup refuse it until `holdfast objects adopt` (docs/safety.md, rule 20).
"""

import asyncio
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.app.config import ServeSettings
from holdfast.app.data_directory import locked_data_directory
from holdfast.app.embedded_etcd.place import MemberPlace, member_place
from holdfast.app.store_backup import SQLITE_HEADER, check_sqlite
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.files import sync_directory
from holdfast.vocabulary.random import Random

_UNFINISHED: Final = "restoring"
_TIMEOUT_S: Final = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What was restored, where, and with which --store a server uses it."""

    engine: str
    place: str
    store: str


async def restore(settings: ServeSettings, file: Path, *, random: Random) -> RestoreReport:
    """Restore `file` into the data directory of the settings, which must have nothing in it yet."""
    return await asyncio.to_thread(_restore, settings, file, random)


def _restore(settings: ServeSettings, file: Path, random: Random) -> RestoreReport:
    header = _header(file)
    with locked_data_directory(settings.data) as directory:
        _require_new(directory.path)
        if header == SQLITE_HEADER:
            check_sqlite(file)
            place = directory.path / "store.db"
            _copy(file, place)
            return RestoreReport(engine="sqlite", place=str(place), store=f"sqlite:///{place}")
        member = member_place(settings, settings.agent_id or directory.agent_id(random))
        _restore_etcd(member, file, random)
        return RestoreReport(engine="etcd", place=str(member.data), store="etcd:embedded")


def _header(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(len(SQLITE_HEADER))
    except OSError as error:
        raise InvalidError("backup file", str(file), f"a readable file ({error.strerror})") from None


def _require_new(directory: Path) -> None:
    left = sorted(each.name for each in directory.iterdir() if each.name not in ("lock", _UNFINISHED, "agent-id"))
    if left:
        raise InvalidError("data directory", str(directory), f"new or empty: it has {', '.join(left[:5])}")
    shutil.rmtree(directory / _UNFINISHED, ignore_errors=True)


def _copy(file: Path, to: Path) -> None:
    unfinished = to.with_name(_UNFINISHED)
    shutil.copyfile(file, unfinished)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.replace(to)
    sync_directory(to.parent)


def _restore_etcd(member: MemberPlace, file: Path, random: Random) -> None:
    from holdfast.app.embedded_etcd.program import environment, find_program  # they bring gRPC
    from holdfast.stores.etcd.maintenance import check_snapshot

    check_snapshot(file)
    unfinished = member.directory / _UNFINISHED
    flags = {
        "name": member.name,
        "data-dir": str(unfinished),
        "initial-cluster": f"{member.name}={member.peer_url}",
        "initial-advertise-peer-urls": member.peer_url,
        "initial-cluster-token": f"holdfast-{random.token()}",
    }
    command = _restore_program(find_program(member))
    argv = [*command, "snapshot", "restore", str(file), *(f"--{name}={value}" for name, value in flags.items())]
    try:
        done = subprocess.run(  # noqa: S603 (the program that the operator names)
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, env={**environment(), "ETCDCTL_API": "3"}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(command[0], str(error)) from None
    if done.returncode:
        raise UnavailableError(command[0], (done.stderr or done.stdout).strip()[-1_000:])
    unfinished.rename(member.data)
    sync_directory(member.directory)


def _restore_program(etcd: Path) -> list[str]:
    """The program that restores snapshots: the one beside etcd, else on PATH. Before 3.5 it was etcdctl."""
    for name in ("etcdutl", "etcdctl"):
        beside = etcd.with_name(name)
        found = str(beside) if beside.exists() else shutil.which(name)
        if found:
            return [found]
    raise UsageError(f"no etcdutl beside {etcd} or on PATH: it comes with etcd's releases")

"""Kernel confinement of the engine: it reaches its own directory, its libraries, and no other host.

Linux's Landlock (5.13 or later; hosts from 6.7 on) needs no privilege. It applies to the calling thread and all threads started by
it, for good. The one rule: every call into the engine is made on such a thread.
"""

import ctypes
import logging
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_SET_NO_NEW_PRIVS: Final = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_ACCESS: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | 1 << 15
_TCP: Final = 0b11  # to bind and to connect
_SIGNALS_AND_SOCKETS: Final = 0b11  # to processes outside the confinement
# Number of access rights by version of the interface.
_ACCESS_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_ACCESS_RIGHTS_LATEST: Final = 16

_NEVER_CONFINED: Final = "UDP and other protocols than TCP"

_READABLE_PATHS: Final = (
    *("/usr", "/lib", "/lib64", "/bin", "/etc/localtime", "/etc/timezone", "/etc/ld.so.cache", "/sys/fs/cgroup"),
    *("/sys/devices/system", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/sys/kernel/mm/transparent_hugepage", "/proc/sys/vm/overcommit_memory", "/proc/self/auxv"),
    *("/proc/self/maps", "/proc/self/stat", "/proc/self/statm", "/proc/self/status", "/proc/self/cgroup"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def unconfined_access(version: int) -> tuple[str, ...]:
    """What a version of the interface does not confine; below 1: there is none."""
    by_version = (
        (1, "reading and writing other files, and running programs"),
        (3, "truncating other files"),
        (4, "connections to other hosts over TCP"),
        (6, "signals and abstract sockets to other processes"),
    )
    missing = [access for needs, access in by_version if version < needs]
    if version < 1:
        missing.remove("truncating other files")  # part of writing them
    return (*missing, _NEVER_CONFINED)


def log_unconfined(access: tuple[str, ...]) -> None:
    """Say what only the engine's grants and the access policy deny."""
    level = logging.INFO if access == (_NEVER_CONFINED,) else logging.WARNING
    _log.log(level, "not confined by the kernel: %s; only ClickHouse's grants deny it", "; ".join(access))


def confine(data: Path) -> bool:
    """Confine this thread and all it starts to `data`; False if this kernel cannot. It cannot be undone."""
    version = _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG) if sys.platform == "linux" else -1
    log_unconfined(unconfined_access(version))
    if version < 1:
        return False
    every = (1 << _ACCESS_RIGHTS.get(version, _ACCESS_RIGHTS_LATEST)) - 1
    attributes = struct.pack("<QQQ", every, _TCP if version >= 4 else 0, _SIGNALS_AND_SOCKETS if version >= 6 else 0)
    ruleset = _checked(_syscall(_CREATE_RULESET, attributes, 24 if version >= 6 else 16 if version >= 4 else 8, 0))
    try:
        for path, access in _allowed(data, every):
            _allow(ruleset, path, access & every)
        _checked(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allowed(data: Path, every: int) -> Iterator[tuple[Path, int]]:
    yield data, every
    for path in _existing((*_READABLE_PATHS, sys.prefix, sys.base_prefix, *_packages())):
        yield path, _READ
    for path in _existing(_DEVICES):
        yield path, _READ_FILE | _WRITE_FILE


def _packages() -> Iterator[str]:
    """Directories of code that may still be imported, if it is not the interpreter's own."""
    for name in ("holdfast", "chdb"):
        spec = find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec is not None else ()


def _existing(paths: Iterable[str]) -> list[Path]:
    found = {Path(path).resolve() for path in paths if path and Path(path).exists()}
    return sorted(path for path in found if path != Path("/"))


def _allow(ruleset: int, path: Path, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        access = access if path.is_dir() else access & _FILE_ACCESS
        _checked(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("<Qi", access, descriptor), 0))
    finally:
        os.close(descriptor)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *map(_as_c, arguments)))


def _as_c(argument: int | bytes | None) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return outcome

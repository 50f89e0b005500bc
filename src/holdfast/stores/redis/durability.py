"""Durability: the server settings that a durable commit depends on, checked when a store is opened.

The one rule: fsync before every reply, and nothing is evicted. A server that does not guarantee this, or hides its settings, is
refused; `?unsafe=1` opens it anyway, and the store's notes list what is wrong.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from redis.exceptions import ResponseError

from holdfast.stores.redis.connection import RedisConnection, pack
from holdfast.stores.redis.error_replies import code_of
from holdfast.stores.redis.settings import RedisAddress
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError

VERSION_MIN: Final = (6, 2)
_CONFIGURED: Final = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy")
_UNSAFE: Final = "or open it with ?unsafe=1, which accepts that acknowledged commits may be lost"


@dataclass(frozen=True, slots=True)
class DurabilityReport:
    """The server's settings. `faults` is empty if a commit survives a crash."""

    server: str
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def durability(self) -> str:
        """One line for the store's facts."""
        if self.faults:
            return "unsafe: " + "; ".join(self.faults)
        return "append-only file, fsync before every reply"


async def check_durability(connection: RedisConnection, address: RedisAddress, *, unsafe: bool) -> DurabilityReport:
    """Read the server's settings; refuse a server that cannot keep the contract."""
    request = pack("INFO") + b"".join(pack("CONFIG", "GET", name) for name in (*_CONFIGURED, "aof-load-truncated"))
    info_reply, *config_replies = await connection.execute(request, len(_CONFIGURED) + 2)
    if isinstance(info_reply, ResponseError):
        if code_of(info_reply) == "NOPERM":
            raise InvalidError(f"user of {address.shown}", address.username, f"allowed to run INFO ({info_reply})")
        raise UnavailableError(address.shown, str(info_reply))
    info = _read_info(info_reply)
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    server = f"{name} {version} at {address.shown}"
    if tuple(int(part) for part in re.findall(r"\d+", info.get("redis_version", "0.0"))[:2]) < VERSION_MIN:
        raise InvalidError("server version", server, "Redis 6.2 or later, or Valkey")
    if info.get("role") != "master":
        raise InvalidError(f"role of {server}", info.get("role"), "a primary: replicas accept no writes")
    faults = [*_find_faults(info), *_find_config_faults(config_replies)]
    if faults and not unsafe:
        raise UsageError(f"{server} is not durable: {'; '.join(faults)}; {_remedy(faults)}, {_UNSAFE}")
    return DurabilityReport(server, tuple(faults), tuple(_find_notes(info, config_replies[-1])))


def _read_info(reply: bytes) -> dict[str, str]:
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _find_faults(info: dict[str, str]) -> list[str]:
    faults = []
    if info.get("cluster_enabled", "0") != "0" or info.get("redis_mode", "standalone") not in ("standalone", ""):
        faults.append(f"it runs in {info.get('redis_mode', 'cluster')} mode, not as a single primary")
    if info.get("aof_last_write_status", "ok") != "ok":
        faults.append("its last write to the append-only file failed")
    return faults


def _find_config_faults(replies: list[Any]) -> list[str]:
    found: dict[str, str] = {}
    for name, reply in zip(_CONFIGURED, replies, strict=False):
        if isinstance(reply, ResponseError) or not reply:
            return [f"CONFIG GET {name} is not allowed ({reply or 'no reply'}), so its durability cannot be checked"]
        found[name] = reply[1].decode()
    faults = [
        f"{name} is {found[name]}, not {wanted}"
        for name, wanted in (("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no"))
        if found[name] != wanted
    ]
    if found["maxmemory"] != "0" and found["maxmemory-policy"] != "noeviction":
        faults.append(f"maxmemory-policy is {found['maxmemory-policy']}, not noeviction, with a memory limit set")
    return faults


def _remedy(faults: list[str]) -> str:
    if any("CONFIG GET" in fault for fault in faults):
        return "allow this user to run CONFIG GET (hosted servers often forbid it)"
    return (
        "set appendonly yes, appendfsync always, no-appendfsync-on-rewrite no, maxmemory-policy noeviction, no cluster"
    )


def _find_notes(info: dict[str, str], truncated: Any) -> list[str]:
    notes = ["sessions expire by the server's wall clock: a step forward ends them early"]
    replicas = int(info.get("connected_slaves", "0"))
    if replicas:
        notes.append(
            f"asynchronous replicas: {replicas}; a failover (by Sentinel, say) may lose acknowledged commits; "
            "clients that find the version went back stop with CorruptError"
        )
    if not isinstance(truncated, ResponseError) and truncated and truncated[1] == b"yes":
        notes.append(
            "aof-load-truncated is yes: after a crash the server drops a torn end of its file, unacknowledged commits only"
        )
    return notes

"""Settings of the embedded ClickHouse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseSettings:
    """Data directory, users and limits.

    `users`: passwords by name. `body_bytes_max`: of a request body, uncompressed; `query_bytes_max`: of a statement, without the
    data of an insert. `answer_bytes_max`: of a result whose format cannot be streamed. `queries_max`: statements that run at a
    time; others are queued for `queue_ms`. `query_ms_max`: run time of a statement, and upper limit of `max_execution_time`.
    `memory_bytes_max`: of all statements together, 0: the engine's own limit. `connections_max`: further ones are refused.
    `idle_ms`: after it an idle connection is closed. `sessions_max`, `session_ms_max`: limits of `session_id` and
    `session_timeout`. `stop_ms`: how long a graceful stop waits for running statements. `confined`: have the kernel deny the
    engine other files and hosts, where it can.
    """

    data: Path
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    body_bytes_max: int = 1024 * MIB
    query_bytes_max: int = 4 * MIB
    answer_bytes_max: int = 256 * MIB
    queries_max: int = 32
    queue_ms: int = 10_000
    query_ms_max: int = 3_600_000
    memory_bytes_max: int = 0
    connections_max: int = 256
    idle_ms: int = 600_000
    sessions_max: int = 100
    session_ms_max: int = 3_600_000
    stop_ms: int = 10_000
    confined: bool = True

    def __post_init__(self) -> None:
        if not self.users:
            raise InvalidError("users", {}, "at least one name with a password")
        for name, password in self.users.items():
            if not name or not name.isprintable() or ":" in name:
                raise InvalidError("user", name, "a printable name without a colon")
            if not password:
                raise InvalidError(f"password of {name}", "", "non-empty")
        check_between("body_bytes_max", self.body_bytes_max, 64 * KIB, 1 << 40)
        check_between("query_bytes_max", self.query_bytes_max, 4 * KIB, 1 << 30)
        check_at_least("answer_bytes_max", self.answer_bytes_max, 64 * KIB)
        check_between("queries_max", self.queries_max, 1, 1_000)
        check_between("connections_max", self.connections_max, 1, 10_000)
        check_at_least("query_ms_max", self.query_ms_max, 1_000)
        for name in ("queue_ms", "memory_bytes_max", "sessions_max", "stop_ms"):
            check_at_least(name, getattr(self, name), 0)
        for name in ("idle_ms", "session_ms_max"):
            check_at_least(name, getattr(self, name), 100)

"""What an operator may tune about the embedded ClickHouse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickHouseSettings:
    """Where it lives, who may use it, and its limits.

    `users`: passwords by name; a wrong or missing one is refused. `body_bytes_max`: what a request may bring, after decompression;
    `query_bytes_max`: of a statement, without the data of an insert. `answer_bytes_max`: of an answer whose format cannot be
    streamed. `queries_max`: so many run at a time, others wait `queue_ms`. `query_ms_max`: the longest a statement may run, and
    what `max_execution_time` may be at most. `memory_bytes_max`: of all statements together, 0: what the engine takes by itself.
    `connections_max`: further ones are refused. `idle_ms`: a silent connection is closed. `sessions_max`, `session_ms_max`: of
    `session_id` and `session_timeout`. `stop_ms`: how long a polite stop waits for running statements.
    `confined`: have the kernel keep the engine from other files and hosts, where it can.
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
            raise InvalidError("users", "nobody", "at least one name with a password")
        for name, password in self.users.items():
            if not name or not name.isprintable() or ":" in name:
                raise InvalidError("user", name, "printable, without a colon")
            if not password:
                raise InvalidError(f"password of {name}", "", "not empty")
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

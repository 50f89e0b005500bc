"""What each route needs a caller to be allowed: the one table of the gateway.

The one rule: a route without a rule is not served; the application does not start. Needs on the cluster, and on what the path
names, are checked before a handler is called. What the query or the body names, and what a listing shows, the handler asks for
(`access`), which refuses a question that the rule does not name. Several that a handler asks for are not all needed: which of them
for what is its business, as in Kafka (to create a topic: CREATE on the cluster, or on the topic).

Pipelines are administered as a whole: to see one takes DESCRIBE on the cluster, to change one or to look at records ALTER.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.security.acls import Operation, ResourceType


class NameSource(StrEnum):
    """Where the name of a resource comes from."""

    CLUSTER = "cluster"
    """There is one."""
    PATH = "path"
    HANDLER = "handler"
    """The query, the body, or what is listed: the handler asks."""


@dataclass(frozen=True, slots=True)
class Need:
    """An operation on a resource. `parameter`: of the path, that names it."""

    operation: Operation
    kind: ResourceType
    source: NameSource
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Who may call a route. `public`: everybody, without credentials."""

    needs: tuple[Need, ...] = ()
    public: bool = False

    checked_first: tuple[Need, ...] = field(init=False)
    """What is checked before the handler is called."""
    administers: bool = field(init=False)
    """Whether a call that changes something is an act of administration."""

    def __post_init__(self) -> None:
        checked = tuple(need for need in self.needs if need.source is not NameSource.HANDLER)
        object.__setattr__(self, "checked_first", checked)
        administers = self.public or any(need.operation in _ADMINISTRATION for need in self.needs)
        object.__setattr__(self, "administers", administers)

    def names(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether a handler may ask for this."""
        return any((need.operation, need.kind) == (operation, kind) for need in self.needs)


_ADMINISTRATION: Final = frozenset(
    {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION}
)
_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def _cluster(operation: Operation) -> Need:
    return Need(operation, ResourceType.CLUSTER, NameSource.CLUSTER)


def _asked(operation: Operation, kind: ResourceType) -> Need:
    return Need(operation, kind, NameSource.HANDLER)


def _topic(operation: Operation) -> Need:
    return Need(operation, ResourceType.TOPIC, NameSource.PATH, "topic")


def _group(operation: Operation) -> Need:
    return Need(operation, ResourceType.GROUP, NameSource.PATH, "group")


_PUBLIC: Final = RouteRule(public=True)
_LOGGED_IN: Final = RouteRule()
_SEE: Final = RouteRule((_cluster(_DESCRIBE),))
_ADMINISTER: Final = RouteRule((_cluster(_ALTER),))

_TOPICS, _GROUPS = "/api/v1/topics", "/api/v1/consumer-groups"
_PIPELINE = "/api/pipelines/{pipeline}"
_PARTS: Final = (
    *("kafka-config", "clickhouse-config", "sink-config", "query-config", "mapping", "filters-config"),
    *("sql-config", "drift-config", "parts"),
)


def _log_rules() -> Iterator[tuple[str, RouteRule]]:
    topic, group = _TOPICS + "/{topic}", _GROUPS + "/{group}"
    yield f"GET {_TOPICS}", RouteRule((_asked(_DESCRIBE, ResourceType.TOPIC),))
    create = Need(_CREATE, ResourceType.CLUSTER, NameSource.HANDLER)
    yield f"POST {_TOPICS}", RouteRule((_asked(_CREATE, ResourceType.TOPIC), create))
    yield f"GET {topic}", RouteRule((_topic(_DESCRIBE), _topic(_DESCRIBE_CONFIGS)))
    alter_cluster = Need(_ALTER, ResourceType.CLUSTER, NameSource.HANDLER)
    yield (
        f"PATCH {topic}",
        RouteRule(
            (
                *(_topic(_DESCRIBE), _topic(_DESCRIBE_CONFIGS), alter_cluster),
                *(_asked(_ALTER, ResourceType.TOPIC), _asked(_ALTER_CONFIGS, ResourceType.TOPIC)),
            )
        ),
    )
    yield f"DELETE {topic}", RouteRule((_topic(_DELETE),))
    yield f"GET {topic}/partitions", RouteRule((_topic(_DESCRIBE),))
    for path in ("/api/v1/produce", "/api/v1/produce/batch"):
        yield f"POST {path}", RouteRule((_asked(_WRITE, ResourceType.TOPIC),))
    yield f"POST {topic}/messages", RouteRule((_topic(_WRITE),))
    yield "GET /api/v1/consume", RouteRule((_asked(_READ, ResourceType.TOPIC),))
    for path in ("messages", "tail"):
        yield f"GET {topic}/{path}", RouteRule((_topic(_READ),))
    yield f"GET {_GROUPS}", RouteRule((_asked(_DESCRIBE, ResourceType.GROUP),))
    shown = RouteRule((_group(_DESCRIBE), _asked(_DESCRIBE, ResourceType.TOPIC)))
    yield from ((f"GET {group}", shown), (f"GET {group}/lag", shown))
    moved = RouteRule((_group(_READ), _asked(_READ, ResourceType.TOPIC)))
    yield from ((f"POST {group}/reset", moved), (f"POST {group}/seek", moved))
    yield (
        f"POST {_GROUPS}/commit",
        RouteRule((_asked(_READ, ResourceType.GROUP), _asked(_READ, ResourceType.TOPIC))),
    )
    yield f"DELETE {group}", RouteRule((_group(_DELETE),))
    for path in ("agents", "agents/{agent}", "leases", "transfers"):
        yield f"GET /api/v1/{path}", _SEE


def _pipeline_rules() -> Iterator[tuple[str, RouteRule]]:
    for path in ("/api/pipelines", "/api/status", "/api/workers", _PIPELINE):
        yield f"GET {path}", _SEE
    for path in ("state", "status", "assignments", "table-diff", "migration", "dlq/count"):
        yield f"GET {_PIPELINE}/{path}", _SEE
    yield f"POST {_PIPELINE}/validate/{{what}}", _SEE
    yield "POST /api/pipelines", _ADMINISTER
    for method in ("PUT", "DELETE"):
        yield f"{method} {_PIPELINE}", _ADMINISTER
    for path in ("state", *_PARTS):
        yield f"PUT {_PIPELINE}/{path}", _ADMINISTER
    yield f"PATCH {_PIPELINE}/state", _ADMINISTER
    for path in (
        *("start", "stop", "scale", "infer", "preview", "filters-eval", "table", "migration"),
        *("dlq/replay", "rewind", "backfill"),
    ):
        yield f"POST {_PIPELINE}/{path}", _ADMINISTER
    # Records, credentials, and what is in a database beside the pipeline's own table.
    for path in (*_PARTS, "sample", "dlq", "clickhouse/databases", "clickhouse/tables", "clickhouse/schema"):
        yield f"GET {_PIPELINE}/{path}", _ADMINISTER
    yield f"DELETE {_PIPELINE}/backfill/{{generation}}", _ADMINISTER


def _heap_rules() -> Iterator[tuple[str, RouteRule]]:
    create = Need(_CREATE, ResourceType.CLUSTER, NameSource.HANDLER)
    yield "POST /v1/heaps", RouteRule((_asked(_CREATE, ResourceType.TOPIC), create))
    yield "GET /v1/heaps/{topic}", RouteRule((_topic(_DESCRIBE),))
    yield "PATCH /v1/heaps/{topic}", RouteRule((_topic(_ALTER),))
    yield "DELETE /v1/heaps/{topic}", RouteRule((_topic(_DELETE),))
    by_operation = {
        _WRITE: ("POST /v1/enqueue", "POST /v1/enqueue:batch"),
        _READ: (
            *(f"POST /v1/{path}" for path in ("pop", "ack", "nack", "extend", "release")),
            *("GET /v1/peek", "GET /v1/dlq", "GET /v1/dlq/peek"),  # they show payloads and reasons
        ),
        _DESCRIBE: ("GET /v1/heaps", "GET /v1/stats"),
        _ALTER: ("POST /v1/reprioritise", "POST /v1/cancel", "POST /v1/dlq/replay", "POST /v1/dlq/move"),
        _DELETE: ("POST /v1/purge", "POST /v1/dlq/delete"),
    }
    for operation, routes in by_operation.items():
        for route in routes:
            yield route, RouteRule((_asked(operation, ResourceType.TOPIC),))


def _security_rules() -> Iterator[tuple[str, RouteRule]]:
    for path in ("login", "logout", "bootstrap"):
        yield f"POST /api/v1/{path}", _PUBLIC
    yield "GET /api/v1/session", _LOGGED_IN
    yield "POST /v1/confirmations", _LOGGED_IN  # a token is no right: the call that takes it has a rule of its own
    for path in ("keys", "users", "acls"):
        yield f"GET /api/v1/{path}", _SEE
        yield f"POST /api/v1/{path}", _ADMINISTER
    yield "PUT /api/v1/users/{user}/password", _ADMINISTER
    for path in ("keys/{prefix}", "users/{user}", "acls"):
        yield f"DELETE /api/v1/{path}", _ADMINISTER


def _rules() -> Iterator[tuple[str, RouteRule]]:
    # Probes have no credentials; the reference is that of every server of this version.
    for path in ("/live", "/ready", "/", "/openapi.json"):
        yield f"GET {path}", _PUBLIC
    yield "GET /metrics", _SEE
    yield from _log_rules()
    yield from _heap_rules()
    yield from _pipeline_rules()
    yield from _security_rules()


RULES: Final[Mapping[str, RouteRule]] = dict(_rules())
"""`METHOD path` → rule."""


class MissingRouteRuleError(LookupError):
    """Routes that nobody has said who may call."""

    def __init__(self, routes: Iterable[str]) -> None:
        super().__init__(f"no rule for {', '.join(sorted(routes))}: add it to gateways.http.route_rules")


def check_routes(routes: Iterable[str], rules: Mapping[str, RouteRule] = RULES) -> None:
    """Raise `MissingRouteRuleError` unless each route, `METHOD path`, has a rule."""
    missing = set(routes) - set(rules)
    if missing:
        raise MissingRouteRuleError(missing)

"""The table of rules: every route has one, and every rule a route."""

import pytest
from litestar import Litestar, get
from litestar.di import Provide
from tests.support.http_gateway import running_http_gateway

from holdfast.gateways.http.access import RequestAccess, UnnamedNeedError
from holdfast.gateways.http.application import make_application, routes_of
from holdfast.gateways.http.route_rules import RULES, MissingRouteRuleError, NameSource, RouteRule, check_routes
from holdfast.gateways.http.routes import (
    cluster,
    consumer_groups,
    health,
    heap_dead_letters,
    heap_messages,
    heaps,
    records,
    topics,
)
from holdfast.security.acls import OPERATIONS, Operation, ResourceType


def log_routes() -> list[str]:
    """The routes of the log and of heaps, which a gateway without them does not serve."""
    handlers = [*topics.HANDLERS, *records.HANDLERS, *consumer_groups.HANDLERS, *cluster.HANDLERS]
    handlers += [*heaps.HANDLERS, *heap_messages.HANDLERS, *heap_dead_letters.HANDLERS]
    names = ("log", "heaps", "confirmations")
    given = {name: Provide(lambda: None, sync_to_thread=False) for name in names}
    return routes_of(Litestar(handlers, dependencies=given, openapi_config=None, logging_config=None))


async def test_the_application_starts_because_every_route_has_a_rule() -> None:
    async with running_http_gateway() as made:
        assert made.server.accepting
    check_routes(log_routes())


async def test_an_application_with_a_route_without_a_rule_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    @get("/api/v1/backdoor")
    async def backdoor() -> str:
        return "open"

    monkeypatch.setattr(health, "HANDLERS", (*health.HANDLERS, backdoor))
    with pytest.raises(MissingRouteRuleError, match="GET /api/v1/backdoor"):
        async with running_http_gateway(factory=make_application):
            pass


async def test_every_rule_has_a_route() -> None:
    """A rule that no route has is a mistake in its path: the route would have another one, or none."""
    async with running_http_gateway() as made:
        document = (await made.client.get("/openapi.json")).json()
    served = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert set(RULES) == served | set(log_routes())


def test_rules_are_possible() -> None:
    for route, rule in RULES.items():
        assert not (rule.public and rule.needs), route
        for need in rule.needs:
            assert need.operation in OPERATIONS[need.kind], route
            assert (need.source is NameSource.PATH) == bool(need.parameter), route
            assert not need.parameter or f"{{{need.parameter}}}" in route
    assert {route for route, rule in RULES.items() if rule.public} == {
        *("GET /live", "GET /ready", "GET /", "GET /openapi.json"),
        *("POST /api/v1/login", "POST /api/v1/logout", "POST /api/v1/bootstrap"),
    }


def test_a_handler_cannot_ask_for_what_its_rule_does_not_name() -> None:
    access = RequestAccess(None, None, RouteRule())  # type: ignore[arg-type]
    with pytest.raises(UnnamedNeedError, match="write on a topic"):
        access.allows(Operation.WRITE, ResourceType.TOPIC, "orders")

"""The tables of the gateway: a rule for every rpc, a code for every error, records as messages and back."""

from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateways.grpc import rules
from holdfast.gateways.grpc.access import CallAccess, UnnamedNeedError, peer_host
from holdfast.gateways.grpc.call_limits import CallLimits
from holdfast.gateways.grpc.calls import MissingMethodError, rpc_name, service_handler
from holdfast.gateways.grpc.errors import CODES, failure_of
from holdfast.gateways.grpc.records import from_record, pages, size_bytes, to_records
from holdfast.gateways.grpc.request_reader import ParsingThread
from holdfast.gateways.grpc.rules import RULES, MissingRuleError, RpcRule, rule_of
from holdfast.gateways.grpc.server import SERVICES
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.gateways.http import problems
from holdfast.gateways.log_access.pages import page_of
from holdfast.log.batches import Record
from holdfast.log.errors import NotEnoughReplicasError
from holdfast.security.acls import Operation, ResourceType
from holdfast.v1 import record_pb2, topic_service_pb2
from holdfast.vocabulary.errors import InvalidError

METHODS = [method for service in SERVICES.values() for method in service.methods]


@pytest.mark.parametrize("method", METHODS, ids=rpc_name)
def test_every_rpc_has_a_rule_whose_names_are_in_its_requests(method: Any) -> None:
    rule = rule_of(rpc_name(method))
    assert rule.needs
    assert not rule.public
    fields = {field.name for field in method.input_type.fields}
    assert {need.field for need in rule.needs if need.field} <= fields
    if method.client_streaming:  # nothing of a request is known when the call begins
        assert not [need for need in rule.first if need.field]


def test_every_rule_is_that_of_an_rpc() -> None:
    known = {rpc_name(method) for method in METHODS}
    assert {rpc for rpc in RULES if rpc.startswith("/holdfast.v1.")} == known


def test_an_rpc_without_a_rule_or_a_method_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    service: ServiceDescriptor = SERVICES["FetchService"]
    with pytest.raises(MissingMethodError, match="Fetch"):
        service_handler(service, object(), None, ParsingThread(), CallLimits(GrpcSettings()))  # type: ignore[arg-type]
    monkeypatch.setattr(rules, "RULES", {})
    with pytest.raises(MissingRuleError, match="FetchService/Fetch"):
        service_handler(service, object(), None, ParsingThread(), CallLimits(GrpcSettings()))  # type: ignore[arg-type]


def test_a_question_that_a_rule_does_not_name_is_an_error_of_ours() -> None:
    with pytest.raises(UnnamedNeedError):
        CallAccess(RpcRule()).allows(Operation.READ, ResourceType.TOPIC, "a")


def test_the_address_of_a_peer() -> None:
    assert peer_host("ipv4:127.0.0.1:5432") == "127.0.0.1"
    assert peer_host("ipv6:%5B::1%5D:5432") == "::1"


# What HTTP answers with, and the codes that mean the same.
SAME = {
    400: {StatusCode.INVALID_ARGUMENT},
    401: {StatusCode.UNAUTHENTICATED},
    403: {StatusCode.PERMISSION_DENIED},
    404: {StatusCode.NOT_FOUND},
    409: {StatusCode.ABORTED, StatusCode.ALREADY_EXISTS, StatusCode.FAILED_PRECONDITION},
    428: {StatusCode.FAILED_PRECONDITION},
    422: {StatusCode.INVALID_ARGUMENT, StatusCode.OUT_OF_RANGE},
    429: {StatusCode.RESOURCE_EXHAUSTED},
    500: {StatusCode.DATA_LOSS, StatusCode.INTERNAL},
    503: {StatusCode.UNAVAILABLE},
    504: {StatusCode.DEADLINE_EXCEEDED},
}


@pytest.mark.parametrize(
    "kind", [kind for kind, _ in CODES if kind is not NotEnoughReplicasError], ids=lambda kind: kind.__name__
)
def test_an_error_is_the_same_over_http(kind: type) -> None:
    code, _ = next(said for each, said in CODES if each is kind)
    problem = next(said for kinds, said in problems._TYPE_BY_ERROR if issubclass(kind, kinds))
    assert code in SAME[problem.status]


def test_an_append_that_some_replicas_have_has_an_unknown_outcome() -> None:
    assert failure_of(NotEnoughReplicasError("a:0", 1, 2)).code is StatusCode.UNAVAILABLE
    assert failure_of(NotEnoughReplicasError("a:0", 1, 2, appended=True)).code is StatusCode.DEADLINE_EXCEEDED


def test_a_password_in_a_message_is_not_sent() -> None:
    assert "secret" not in failure_of(InvalidError("store", "postgresql://me:secret@db/x", "another")).detail


_data = st.none() | st.binary(max_size=20)


@given(key=_data, value=_data, headers=st.lists(st.tuples(st.text(max_size=5), _data), max_size=3))
def test_what_was_read_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(0, 1_000, key, value, tuple(headers))
    read = record_pb2.Record.FromString(from_record(record).SerializeToString())
    again = record_pb2.NewRecord(timestamp_ms=read.timestamp_ms, headers=read.headers)
    if read.HasField("key"):
        again.key = read.key
    if read.HasField("value"):
        again.value = read.value
    assert to_records([again], 5) == ([record], [None])


@given(sizes=st.lists(st.integers(0, 500), max_size=20), bytes_max=st.integers(1, 1_000))
def test_pages_hold_every_record_and_no_more_than_fits(sizes: list[int], bytes_max: int) -> None:
    records = [Record(number, 0, None, bytes(size)) for number, size in enumerate(sizes)]
    found = list(pages(records, bytes_max))
    assert [record for page in found for record in page] == records
    assert all(len(page) == 1 or sum(map(size_bytes, page)) <= bytes_max for page in found)


def test_pages_of_a_listing_follow_each_other() -> None:
    names, token, listed = [f"t{n:02d}" for n in range(7)], "", list[str]()
    while True:
        page = page_of(names, str, topic_service_pb2.ListTopicsRequest(page_size=3, page_token=token))
        listed += page.items
        token = page.next_page_token
        if not token:
            break
    assert listed == names
    with pytest.raises(InvalidError, match="page_size"):
        page_of(names, str, topic_service_pb2.ListTopicsRequest(page_size=-1))

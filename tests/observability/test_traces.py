"""Traces over OTLP: from the headers of a client through gateway and log to the object, and back out by a Fetch."""

import json

import pytest
from tests.observability.conftest import PARENT, UNSAMPLED, BusyServer
from tests.support.trace_collector import ReceivedSpan
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("observability")

TRACE, CALLER = PARENT.split("-")[1:3]


def one(busy: BusyServer, name: str, parent: str) -> ReceivedSpan:
    def found() -> list[ReceivedSpan]:
        return [each for each in busy.collector.named(name) if each.parent == parent and each.trace == TRACE]

    (span,) = until(found, what=lambda: f"{name} below {parent}; there are {busy.collector.spans}")
    return span


def test_a_record_is_followed_from_its_header_to_the_object_and_to_its_reader(busy: BusyServer) -> None:
    request = one(busy, "kafka Produce", CALLER)
    assert request.attributes["messaging.system"] == "kafka"
    assert request.resource["service.name"] == "holdfast"
    append = one(busy, "log append", request.span)
    assert append.attributes["messaging.destination.name"] == "orders"
    assert append.attributes["messaging.kafka.offset"] == "0"
    uploads = until(
        lambda: [each for each in busy.collector.named("object upload") if (TRACE, append.span) in each.links]
    )
    assert uploads[0].attributes["holdfast.object.key"]
    fetch = one(busy, "kafka Fetch", CALLER)
    assert int(fetch.attributes["holdfast.bytes"]) > 0


def test_a_request_over_http_belongs_to_the_trace_of_its_header_and_says_so(busy: BusyServer) -> None:
    request = one(busy, "HTTP POST", CALLER)
    assert request.attributes["http.route"] == "/api/v1/produce"
    assert request.attributes["http.response.status_code"] == str(busy.http_answer.status_code)
    one(busy, "log append", request.span)
    answer = busy.http_answer.headers
    assert answer["traceparent"] == f"00-{TRACE}-{request.span}-01"
    assert answer["x-request-id"] == "from-the-client-1"


def test_a_call_over_grpc_belongs_to_the_trace_of_its_metadata(busy: BusyServer) -> None:
    call = one(busy, "gRPC Produce", CALLER)
    assert call.attributes["rpc.service"] == "ProduceService"
    assert call.attributes["rpc.grpc.status_code"] == "OK"
    one(busy, "log append", call.span)


def test_log_lines_of_a_request_have_its_id_and_its_trace(busy: BusyServer) -> None:
    lines = [json.loads(line) for line in busy.node.log.splitlines() if line.startswith("{")]
    (access,) = [each["fields"] for each in lines if each.get("fields", {}).get("path") == "/api/v1/produce"]
    assert (access["request"], access["trace_id"]) == ("from-the-client-1", TRACE)


def test_what_the_caller_does_not_sample_and_what_the_ratio_leaves_out_is_not_traced(busy: BusyServer) -> None:
    one(busy, "kafka Produce", CALLER)  # by then the request after it would have come, too
    assert {each.trace for each in busy.collector.spans} == {TRACE}
    assert UNSAMPLED.split("-")[1] != TRACE

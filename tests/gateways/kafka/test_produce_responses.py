"""Responses to runs: what a request by itself would be answered with, encoded once."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.gateways.kafka import produce_responses
from holdfast.gateways.kafka.api import ClientInfo, RequestContext
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.produce import PRODUCE_API, PartitionData, PartitionResult
from holdfast.gateways.kafka.produce_responses import SuccessTemplates, as_named, response_template
from holdfast.kafka.error_codes import ErrorCode

native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

ID = bytes(range(16))


def call(version: int) -> RequestContext:
    backend = cast(KafkaBackend, SimpleNamespace())  # only who is not the leader is asked about it
    return RequestContext(PRODUCE_API, version, 0, "tests", ClientInfo("", 0), backend)


@pytest.mark.parametrize(("version", "named"), [(3, "orders"), (8, "orders"), (9, "orders"), (12, "orders"), (13, ID)])
def test_several_responses_are_single_ones_one_behind_the_other(version: int, named: str | bytes) -> None:
    data = PartitionData("orders", 7, None)
    template = SuccessTemplates().get(call(version), named, data, 1234, 5)
    (several,) = template.responses([[3, -1, 2**31 - 1]], [10, 2**62, 0])
    single = [template.responses([[each]], [offset])[0] for each, offset in ((3, 10), (-1, 2**62), (2**31 - 1, 0))]
    assert several == b"".join(single)
    assert template.responses([[3], [], [-1, 2**31 - 1]], [10, 2**62, 0]) == [single[0], b"", b"".join(single[1:])]
    for offset, found in zip((10, 2**62, 0), single, strict=True):
        result = PartitionResult(data, ErrorCode.NONE, offset, 1234, 5)
        assert found[8:] == response_template(call(version), as_named(named), result).data[8:]


def test_a_response_is_encoded_once_for_what_it_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    real = produce_responses.response_template

    def counted(*given: Any) -> Any:
        encoded.append(given)
        return real(*given)

    monkeypatch.setattr(produce_responses, "response_template", counted)
    templates = SuccessTemplates()
    cases = [
        (9, "a", 0, -1, 0),
        (8, "a", 0, -1, 0),
        (9, "b", 0, -1, 0),
        (9, "a", 1, -1, 0),
        (9, "a", 0, 7, 0),
        (9, "a", 0, -1, 4),
    ]
    for _ in range(3):
        for version, topic, number, append_time_ms, start_offset in cases:
            data = PartitionData(topic, number, None)
            found = templates.get(call(version), topic, data, append_time_ms, start_offset)
            result = PartitionResult(data, ErrorCode.NONE, 0, append_time_ms, start_offset)
            assert found == real(call(version), topic, result)
    assert len(encoded) == len(cases)


def test_no_more_than_a_thousand_are_kept() -> None:
    templates = SuccessTemplates()
    for at in range(2_500):  # as with append times
        templates.get(call(9), "orders", PartitionData("orders", 0, None), at, 0)
    assert len(templates._kept) <= 1_000


def test_it_is_called_wrongly_and_lives() -> None:
    template = bytes(20)
    assert native.responses(template, -1, [], []) == []
    assert native.responses(template, -1, [[]], []) == [b""]
    for wrong in (
        (template, 13, [[1]], [1]),
        (bytes(7), -1, [[1]], [1]),
        (template, 0, [[1, 2]], [1]),
        (template, 0, [[1], [2]], [1]),
        (template, 1 << 62, [[1]], [1]),
    ):
        with pytest.raises(ValueError, match="room for both"):
            native.responses(*wrong)
    for untyped in (
        (bytearray(20), -1, [[1]], [1]),
        (template, -1, ([1],), [1]),
        (template, -1, [(1,)], [1]),
        (template, -1, [["1"]], [1]),
        (template, 8, [[1]], [None]),
    ):
        with pytest.raises(TypeError):
            native.responses(*untyped)
    with pytest.raises(OverflowError):
        native.responses(template, 8, [[1]], [2**63])

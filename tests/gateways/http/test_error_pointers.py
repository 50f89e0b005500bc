"""Problems point at what is wrong, in a batch as well, and settings are counted before anything is made of them."""

import tracemalloc
from typing import Any

import msgspec
import pytest
from litestar.exceptions import ValidationException
from tests.gateways.http.test_heap_routes import Served, served  # noqa: F401 (a fixture)
from tests.support.http_gateway import problem_of

from holdfast.gateways.http.heap.bodies import placed
from holdfast.gateways.http.problems import problem_of_error
from holdfast.gateways.http.routes import bodies
from holdfast.gateways.http.routes.bodies import SETTINGS_MAX, decoded_settings
from holdfast.gateways.http.routes.topics import NewTopic, TopicChange
from holdfast.heap.model import NewMessage
from holdfast.vocabulary.errors import InvalidError


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"priority": 1 << 63}, "priority"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"max_retries": -1}, "max_retries"),
        ({"fairness_key": ""}, "fairness_key"),
        ({"payload": "x" * 200}, "payload"),
        ({"partition_key": "k" * 2_000}, "partition_key"),
        ({"producer_id": "p" * 300, "sequence": 1}, "producer_id"),
        ({"headers_base64": {"a/~.b c": "?"}}, "headers_base64/a~1~0.b c"),
        ({"headers_base64": {"a": "?"}}, "headers_base64/a"),
    ],
)
async def test_an_error_of_a_message_has_its_place_in_the_batch(
    served: Served,  # noqa: F811
    wrong: dict[str, Any],
    pointer: str,
) -> None:
    if (await served.client.get("/v1/heaps/pointed")).status_code == 404:
        await served.heap("pointed", payload_bytes_max=100)
    messages: list[dict[str, Any]] = [{"payload": "x"}, {"payload": "x"} | wrong, {"payload": "x"} | wrong]
    said = problem_of(await served.post("enqueue:batch", topic="pointed", messages=messages), 422, "invalid")
    assert said["errors"][0]["pointer"] == f"#/messages/1/{pointer}"


def test_what_no_message_has_stays_where_it_is() -> None:
    error = InvalidError("priority", 7, "less")
    assert placed(error, [NewMessage(payload=b"", priority=6)]) is error
    other = InvalidError("headers of a batch", 7, "less")
    assert placed(other, [NewMessage(payload=b"")]) is other


@pytest.mark.parametrize(
    ("what", "pointer"),
    [
        ("records[3].value", "#/records/3/value"),
        ('headers["a.b"]', "#/headers/a.b"),
        ('bytes of headers["a b/~\\""]', '#/headers/a b~1~0"'),
        ("headers.a~", "#/headers/a~0"),
        ("nothing", ""),
    ],
)
def test_a_pointer_is_escaped(what: str, pointer: str) -> None:
    error = InvalidError(what, 1, "2")
    [fault] = problem_of_error(error, fields=("records", "headers")).errors
    assert fault.pointer == pointer


def settings_json(count: int) -> bytes:
    return b'{"name":"t","config":{' + b",".join(b'"%x" :"a\\":b"' % each for each in range(count)) + b"}}"


def test_settings_are_counted_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = msgspec.json.Decoder(NewTopic)
    assert len(decoded_settings(decoder, settings_json(SETTINGS_MAX)).config) == SETTINGS_MAX
    with pytest.raises(ValidationException, match="length <= 1000"):
        decoded_settings(decoder, settings_json(SETTINGS_MAX + 1))
    monkeypatch.setattr(bodies, "decoded_body", pytest.fail)
    body = settings_json(100_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValidationException, match="length <= 1000"):
            decoded_settings(decoder, body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_values_with_colons_are_no_settings() -> None:
    body = msgspec.json.encode({"config": {"replicas": '0:1,\\"1:2",' * 5_000, "other": None}})
    assert len(decoded_settings(msgspec.json.Decoder(TopicChange), body).config) == 2

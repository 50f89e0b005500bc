"""S3, GCS and Azure on bad days: what each answer of a service means to a caller."""

from contextlib import AbstractAsyncContextManager
from urllib.parse import unquote

import pytest
from tests.support.scripted_http import (
    EMPTY_LIST,
    PUT_DONE,
    RecordedRequest,
    ScriptedAnswer,
    ScriptedServer,
    error,
    scripted_server,
)

from holdfast.contracts.objects import AlreadyExists, Missing, Objects, Stored
from holdfast.objects.counters import ObjectCounters
from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

SECRET = "wJalrXUtnFEMI"


class PauseClock(RealClock):
    """Only pauses take time, and no real time: requests that are slow on a busy machine do not use up a deadline."""

    def __init__(self) -> None:
        self._paused_ms = 0.0

    def boot_ms(self) -> int:
        return round(self._paused_ms)

    async def sleep_ms(self, duration_ms: float) -> None:
        self._paused_ms += duration_ms
        await super().sleep_ms(0)


def opened(
    server: ScriptedServer,
    *options: str,
    scheme: str = "s3",
    counters: ObjectCounters | None = None,
    pause_ms: int = 10,
    clock: Clock | None = None,
) -> AbstractAsyncContextManager[Objects]:
    credentials = {
        "s3": f"region=us-east-1&access_key_id=AKIA&secret_access_key={SECRET}",
        "gs": f"bearer_token={SECRET}",
        "az": "account_name=dev&account_key=c2VjcmV0c2VjcmV0",
    }[scheme]
    factor = (f"pause_ms={pause_ms}", f"pause_ms_max={5 * pause_ms}", "check=0", *options)
    url = f"{scheme}://bucket/pre?endpoint=http://127.0.0.1:{server.port}&{credentials}&{'&'.join(factor)}"
    return open_objects(url, clock=clock or RealClock(), random=SystemRandom(), counters=counters)


class Script:
    """The first answers, then the last one for ever."""

    def __init__(self, *answers: ScriptedAnswer | None) -> None:
        self._answers = list(answers)

    def __call__(self, request: RecordedRequest) -> ScriptedAnswer | None:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


BODY = ScriptedAnswer("200 OK", b"body", {"etag": '"1"'})


@pytest.mark.parametrize(
    ("failure", "throttled"),
    [
        (error("503 Slow Down", "SlowDown"), 2),
        (error("429 Too Many Requests"), 2),
        (error("500 Internal Server Error", "InternalError"), 0),
        (error("502 Bad Gateway"), 0),
        (error("400 Bad Request", "RequestTimeout"), 0),
        (ScriptedAnswer("200 OK", b"bo", {"etag": '"1"'}, declared=4), 0),  # the connection breaks in the body
    ],
    ids=lambda value: value.status if isinstance(value, ScriptedAnswer) else "",
)
async def test_transient_failures_are_retried(failure: ScriptedAnswer, throttled: int) -> None:
    counters = ObjectCounters()
    async with scripted_server(Script(failure, failure, BODY)) as server, opened(server, counters=counters) as objects:
        assert await objects.get("k") == b"body"
        totals = counters.of("get")
        assert (len(server.requests), totals.calls, totals.errors, totals.retries) == (3, 3, 2, 2)
        assert totals.throttled == throttled


async def test_a_service_that_does_not_respond_is_retried() -> None:
    async with scripted_server(Script(None, BODY)) as server, opened(server, "attempt_timeout_ms=200") as objects:
        assert await objects.get("k") == b"body"


@pytest.mark.parametrize(
    ("status", "code"),
    [("403 Forbidden", "AccessDenied"), ("401 Unauthorized", ""), ("400 Bad Request", "InvalidRequest")],
)
async def test_a_refused_request_is_not_retried(status: str, code: str) -> None:
    async with scripted_server(Script(error(status, code))) as server, opened(server) as objects:
        for call in (objects.get("k"), objects.put("k", [b"x"]), objects.get_tail("k", 3), objects.delete(["k"])):
            before = len(server.requests)
            with pytest.raises(UnavailableError) as refused:
                await call
            assert len(server.requests) == before + 1
            assert status in refused.value.reason


async def test_past_the_deadline_the_error_has_the_facts_and_no_secret() -> None:
    async with scripted_server(Script(error("503 Slow Down", "SlowDown"))) as server:
        async with opened(server, pause_ms=5_000, clock=PauseClock()) as objects:
            with pytest.raises(UnavailableError) as failed:
                await objects.put("k", [b"x"])
        text = str(failed.value)
        assert "put failed" in text
        assert f"PUT 127.0.0.1:{server.port}: 503 Service Unavailable (SlowDown)" in text
        assert SECRET not in text
        assert "s3://bucket/pre" in text


async def test_a_refused_connection_is_reported_as_such() -> None:
    async with scripted_server(Script(BODY)) as server:
        pass
    async with opened(server, pause_ms=5_000, clock=PauseClock()) as objects:
        with pytest.raises(UnavailableError, match="connection failed"):
            await objects.get("k")


async def test_a_missing_bucket_is_not_a_missing_object() -> None:
    async with scripted_server(Script(error("404 Not Found", "NoSuchBucket"))) as server, opened(server) as objects:
        with pytest.raises(UnavailableError, match="NoSuchBucket"):
            await objects.get("k")
        with pytest.raises(UnavailableError, match="NoSuchBucket"):
            await objects.get_tail("k", 1)
        with pytest.raises(UnavailableError, match="NoSuchBucket"):
            await objects.get("k", start=2, end=2)
        with pytest.raises(UnavailableError, match="NoSuchBucket"):
            [info async for info in objects.list("")]
    async with scripted_server(Script(error("404 Not Found", "NoSuchKey"))) as server, opened(server) as objects:
        assert await objects.get("k") == Missing("k")


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied"])
async def test_opening_checks_the_bucket(code: str) -> None:
    status = "404 Not Found" if code == "NoSuchBucket" else "403 Forbidden"
    async with scripted_server(Script(error(status, code))) as server:
        with pytest.raises(InvalidError) as refused:
            async with opened(server, "check=1"):
                pass
        assert code in str(refused.value)
        assert SECRET not in str(refused.value)
    async with scripted_server(Script(EMPTY_LIST)) as server, opened(server, "check=1"):
        assert server.methods == ["GET"]


async def test_a_transient_failure_at_open_is_retried() -> None:
    async with scripted_server(Script(error("503 Slow Down"), EMPTY_LIST)) as server, opened(server, "check=1"):
        assert len(server.requests) == 2


async def test_a_server_that_ignores_if_absent_is_detected_at_the_first_put() -> None:
    async with scripted_server(Script(PUT_DONE)) as server:
        async with opened(server) as objects:
            with pytest.raises(InvalidError, match="conditional writes"):
                await objects.put("k", [b"x"])
            assert [(each.method, each.body) for each in server.requests] == [("PUT", b"x"), ("PUT", b"x")]
            assert server.requests[0].headers["if-none-match"] == "*"
        async with opened(server, "unsafe=1") as objects:
            assert await objects.put("k", [b"x"]) == Stored("k", 1)


async def test_a_server_that_honours_if_absent_is_checked_once() -> None:
    taken = error("412 Precondition Failed", "PreconditionFailed")
    async with scripted_server(Script(PUT_DONE, taken, PUT_DONE)) as server, opened(server) as objects:
        assert await objects.put("a", [b"x"]) == Stored("a", 1)
        assert await objects.put("b", [b"x"]) == Stored("b", 1)
        assert len(server.requests) == 3


async def test_an_inconclusive_if_absent_check_is_repeated_by_the_next_put() -> None:
    taken = error("412 Precondition Failed", "PreconditionFailed")
    slow = error("503 Slow Down")
    async with scripted_server(Script(PUT_DONE, slow, PUT_DONE, taken, PUT_DONE)) as server, opened(server) as objects:
        for key in ("a", "b", "c"):
            assert await objects.put(key, [b"x"]) == Stored(key, 1)
        assert len(server.requests) == 5


async def test_a_conflict_is_no_proof_that_the_object_is_there() -> None:
    conflict = error("409 Conflict", "ConditionalRequestConflict")
    answers = Script(conflict, error("404 Not Found"), PUT_DONE)
    async with scripted_server(answers) as server, opened(server, "unsafe=1") as objects:
        assert await objects.put("k", [b"x"]) == Stored("k", 1)
        assert server.methods == ["PUT", "GET", "PUT"]
    there = ScriptedAnswer("206 Partial Content", b"o", {"etag": '"1"', "content-range": "bytes 0-0/5"})
    async with scripted_server(Script(conflict, there)) as server, opened(server) as objects:
        assert await objects.put("k", [b"x"]) == AlreadyExists("k")


@pytest.mark.parametrize("scheme", ["gs", "az"])
async def test_other_clouds_put_if_absent_and_read(scheme: str) -> None:
    def decide(request: RecordedRequest) -> ScriptedAnswer:
        if request.method == "PUT":
            return (
                error("412 Precondition Failed")
                if len(server.requests) == 2
                else ScriptedAnswer("201 Created", b"", PUT_DONE.headers)
            )
        assert request.method == "GET"
        asked = request.headers.get("range", request.headers.get("x-ms-range", ""))
        part = {"bytes=7-9": b"789", "bytes=-3": b"789", "bytes=2-4": b"234", "bytes=0-0": b"0"}[asked]
        first, last = part[0] - 48, part[-1] - 48
        return ScriptedAnswer("206 Partial Content", part, {"etag": '"1"', "content-range": f"bytes {first}-{last}/10"})

    async with scripted_server(decide) as server, opened(server, scheme=scheme) as objects:
        assert await objects.put("topic/0", [b"01234", b"56789"]) == Stored("topic/0", 10)
        condition = {"gs": ("x-goog-if-generation-match", "0"), "az": ("if-none-match", "*")}[scheme]
        for request in server.requests:
            assert request.headers[condition[0]] == condition[1]
            assert unquote(request.path).endswith("/bucket/pre/topic/0")
            assert request.body == b"0123456789"
        assert await objects.get("topic/0", start=2, end=5) == b"234"
        assert await objects.get_tail("topic/0", 3) == b"789"
        assert server.methods == ["PUT", "PUT", "GET", *(["GET"] if scheme == "az" else []), "GET"]


async def test_a_service_without_bulk_delete_deletes_every_key() -> None:
    def decide(request: RecordedRequest) -> ScriptedAnswer:
        return (
            error("404 Not Found", "BlobNotFound") if request.path.endswith("/a") else ScriptedAnswer("204 No Content")
        )

    async with scripted_server(decide) as server, opened(server, "disable_bulk_delete=1") as objects:
        await objects.delete(["a", "b", "c"])
        assert {request.path[-1] for request in server.requests if request.method == "DELETE"} == {"a", "b", "c"}


async def test_waiting_for_an_unavailable_service_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server(Script(error("503 Slow Down", "SlowDown"))) as server:
        with pytest.raises(UnavailableError, match="open failed"):
            async with opened(server, "check=1", "deadline_ms=4500", pause_ms=200, clock=PauseClock()):
                pass
        assert len(server.requests) > 1
    assert sum("object storage s3://bucket/pre" in each for each in caplog.messages) == 1
    assert SECRET not in str([(each.getMessage(), each.exc_info) for each in caplog.records])

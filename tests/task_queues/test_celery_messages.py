"""Kombu's messages as messages of heaps, the settings of the transport and of an app: without a server."""

import logging

import pytest
from celery import Celery
from kombu import Connection

import holdfast.celery
from holdfast.celery.exchanges import matcher
from holdfast.celery.messages import decode, delay_of, priority_of, requeue_pause, safe_name
from holdfast.celery.settings import transport_settings
from holdfast.celery.transport import bootstrap_of
from holdfast.vocabulary.errors import InvalidError

NOW_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def test_an_eta_is_a_delay_in_any_time_zone_and_never_negative() -> None:
    def delay(eta: object) -> float:
        return delay_of({"headers": {"eta": eta}}, NOW_MS)

    assert delay("2023-11-14T22:13:30+00:00") == 10
    assert delay("2023-11-15T00:13:30+02:00") == 10
    assert delay("2023-11-14T22:13:30") == 10, "without a zone it is UTC, as Celery writes it"
    assert delay("2023-11-14T22:13:00+00:00") == 0
    assert [delay(None), delay("soon"), delay_of({}, NOW_MS)] == [0, 0, 0]


def test_priorities_are_0_to_255() -> None:
    given = [7, "8", 300, -1, None, "high"]
    assert [priority_of({"properties": {"priority": each}}) for each in given] == [7, 8, 255, 0, 0, 0]
    assert priority_of({"properties": {}}) == 0


def test_a_queue_has_its_own_name_or_one_that_no_other_queue_has() -> None:
    assert safe_name("shop.", "images_low-1") == "shop.images_low-1"
    names = {safe_name("", each) for each in ("celery@ann", "celery_ann", "celery#ann", "x" * 300, "x" * 301, "..")}
    assert len(names) == 6
    assert all(len(name) <= 249 for name in names)


def test_bindings_match_as_their_exchange_does() -> None:
    assert matcher("fanout", "", None)("anything")
    assert matcher("direct", "a", None)("a")
    assert not matcher("direct", "a", None)("b")
    assert matcher("topic", "task.#", r"^task\..*?$")("task.sent")
    assert not matcher("topic", "task.#", r"^task\..*?$")("worker.online")


def test_several_urls_are_several_nodes_and_credentials_are_refused() -> None:
    assert bootstrap_of(Connection("holdfast://ann:9092;holdfast://bob:9093")) == "ann:9092,bob:9093"
    assert bootstrap_of(Connection("holdfast://ann")) == "ann:9092"
    with pytest.raises(InvalidError):
        bootstrap_of(Connection("holdfast://user:secret@ann"))


def test_unknown_and_impossible_options_are_refused() -> None:
    assert transport_settings({"lease": 5, "max_retries": 3}).heap_config["visibility_timeout_ms"] == 5_000
    for options in ({"visibility_timeout": 3600}, {"lease": 0}, {"partitions": 0}):
        with pytest.raises(InvalidError):
            transport_settings(options)


def test_configure_sets_what_is_needed_and_leaves_and_names_what_was_set_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Celery("shop", broker="holdfast://ann", set_as_current=False)
    app.conf.worker_prefetch_multiplier = 8
    with caplog.at_level(logging.WARNING):
        holdfast.celery.configure(app, lease=10)
    assert (app.conf.task_acks_late, app.conf.task_reject_on_worker_lost) == (True, True)
    assert app.conf.worker_prefetch_multiplier == 8
    assert app.conf.broker_transport_options["lease"] == 10
    assert "worker_prefetch_multiplier is 8 and should be 1" in caplog.text


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"{",
        b"null",
        b"[1]",
        b"{}",
        b'{"properties": {}}',
        b'{"properties": {}, "body": null}',
        b'{"properties": {}, "body": "x", "headers": [1]}',
        b'{"properties": {"delivery_info": 1}, "body": "x"}',
        b'{"properties": {"body_encoding": "rot13"}, "body": "x"}',
        b'{"properties": {"body_encoding": "base64"}, "body": "x"}',
        b'{"properties": {"body_encoding": 64}, "body": "x"}',
    ],
)
def test_what_is_no_message_of_kombus_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidError):
        decode(payload)


def test_what_a_message_lacks_is_empty() -> None:
    assert decode(b'{"body": "", "properties": {}, "headers": null}') == {
        "body": "",
        "properties": {"delivery_info": {}, "delivery_tag": ""},
        "headers": {},
    }


def test_a_message_that_is_requeued_comes_at_once_and_then_later_each_time_up_to_a_minute() -> None:
    pauses = [requeue_pause(attempts) for attempts in range(20)]
    assert pauses[:4] == [0, 0.1, 0.2, 0.4]
    assert (max(pauses), pauses[-1]) == (60, 60)
    assert sum(pauses) > 600, "an outage of ten minutes leaves no dead letters"
    assert requeue_pause(1_000_000) == 60

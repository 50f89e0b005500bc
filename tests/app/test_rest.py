"""The log over HTTP, at real servers: what is written over HTTP is what Kafka's clients read, whichever node is asked."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from tests.app.test_several_nodes import number
from tests.support.server_process import ServeProcess, create_topic, leaders, started
from tests.support.waiting import WAIT_S, until

V1 = "/api/v1"
NDJSON = {"content-type": "application/x-ndjson"}
OCTETS = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    running = ServeProcess(tmp_path_factory.mktemp("rest"), "--roles", "api,agent")
    with started(running):
        yield running


@pytest.fixture
def rest(node: ServeProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http, timeout=WAIT_S) as client:
        yield client


def new_topic(rest: httpx.Client, name: str, partitions: int = 1, **more: Any) -> None:
    answer = rest.post(f"{V1}/topics", json={"name": name, "partitions": partitions, **more})
    assert answer.status_code == 201, answer.text


def consume(rest: httpx.Client, topic: str, **more: Any) -> Any:
    answer = rest.get(f"{V1}/consume", params={"topic": topic, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def values(rest: httpx.Client, topic: str, **more: Any) -> list[str | None]:
    return [record.get("value", record.get("valueBase64")) for record in consume(rest, topic, **more)["records"]]


def refused(answer: httpx.Response, status: int, name: str) -> Any:
    assert (answer.status_code, answer.json().get("type")) == (status, f"urn:holdfast:problem:{name}"), answer.text
    return answer.json()


def test_a_topics_life(rest: httpx.Client) -> None:
    new_topic(rest, "life", 2, retentionMs=60_000, config={"cleanup.policy": "compact"})
    refused(rest.post(f"{V1}/topics", json={"name": "life"}), 409, "conflict")
    refused(rest.post(f"{V1}/topics", json={"name": "no/name"}), 422, "invalid")
    refused(rest.post(f"{V1}/topics", json={"name": "more", "config": {"retention.ms": "soon"}}), 422, "invalid")
    assert "life" in [each["name"] for each in rest.get(f"{V1}/topics").json()]
    described = rest.get(f"{V1}/topics/life").json()
    assert (described["config"]["retention.ms"], described["cleanupPolicy"]) == ("60000", "compact")
    assert set(described["overrides"]) == {"retention.ms", "cleanup.policy"}
    changed = rest.patch(f"{V1}/topics/life", json={"partitions": 3, "config": {"retention.ms": None}}).json()
    assert (changed["partitions"], changed["overrides"]) == (3, ["cleanup.policy"])
    rows = rest.get(f"{V1}/topics/life/partitions").json()
    assert [(row["partition"], row["endOffset"], row["offline"]) for row in rows] == [
        (0, 0, ""),
        (1, 0, ""),
        (2, 0, ""),
    ]
    assert rest.delete(f"{V1}/topics/life").status_code == 204
    refused(rest.get(f"{V1}/topics/life"), 404, "not-found")
    refused(rest.delete(f"{V1}/topics/life"), 404, "not-found")


def test_both_spellings_of_streamhouse_create_a_topic(rest: httpx.Client) -> None:
    answer = rest.post(f"{V1}/topics", json={"name": "spelled", "partition_count": 2, "replication_factor": 1})
    assert (answer.status_code, answer.json()["partitions"]) == (201, 2)
    refused(rest.post(f"{V1}/topics", json={"name": "x", "partitions": 1, "partition_count": 2}), 422, "invalid")


def test_one_record_a_batch_lines_and_bytes(rest: httpx.Client) -> None:
    new_topic(rest, "shapes")
    one = rest.post(f"{V1}/produce", json={"topic": "shapes", "key": "k", "value": {"a": 1}, "headers": {"h": "1"}})
    assert one.json() == {"partition": 0, "offset": 0}
    batch = {"topic": "shapes", "records": [{"value": None, "key": "k"}, {"valueBase64": "/w=="}], "ack_mode": "leader"}
    assert rest.post(f"{V1}/produce/batch", json=batch).json()["offsets"] == [
        {"partition": 0, "offset": 1},
        {"partition": 0, "offset": 2},
    ]
    path = f"{V1}/topics/shapes/messages"
    lines = rest.post(path, content=b'{"b": 2}\n"text"\n', headers=NDJSON).json()
    assert lines == {"count": 2, "ranges": [{"partition": 0, "offset": 3, "count": 2}]}
    assert rest.post(path, params={"key": "raw"}, content=b"\x00\xff", headers=OCTETS).json()["count"] == 1
    read = consume(rest, "shapes")
    assert [record.get("value", record.get("valueBase64")) for record in read["records"]] == [
        '{"a":1}',
        None,
        "/w==",
        '{"b": 2}',
        '"text"',
        "AP8=",
    ]
    assert (read["nextOffset"], read["startOffset"], read["endOffset"]) == (6, 0, 6)
    assert read["records"][0]["headers"] == {"h": "1"}
    assert [record["key"] for record in read["records"]] == ["k", "k", None, None, None, "raw"]


def test_a_problem_points_at_the_record_or_the_settings(rest: httpx.Client) -> None:
    new_topic(rest, "pointed")
    path = f"{V1}/produce/batch"
    for wrong, pointer in (
        ({"timestamp": -1, "value": 1}, "timestamp"),
        ({}, "value"),
        ({"value": 1, "keyBase64": "?"}, "keyBase64"),
    ):
        said = refused(rest.post(path, json={"topic": "pointed", "records": [{"value": 1}, wrong]}), 422, "invalid")
        assert said["errors"][0]["pointer"] == f"#/records/1/{pointer}"
    config = {f"{each:x}": "" for each in range(100_000)}
    for answer in (
        rest.post(f"{V1}/topics", json={"name": "much", "config": config}),
        rest.patch(f"{V1}/topics/pointed", json={"config": config}),
    ):
        assert refused(answer, 400, "malformed")["errors"][0]["pointer"] == "#/config"


def test_as_many_records_as_there_may_be(rest: httpx.Client) -> None:
    new_topic(rest, "many", 2)
    records = [{"key": f"k{n}", "value": n} for n in range(10_000)]
    answer = rest.post(f"{V1}/produce/batch", json={"topic": "many", "records": records}).json()
    found = {
        (p, record["offset"]): record["value"]
        for p in range(2)
        for record in consume(rest, "many", partition=p, maxRecords=10_000)["records"]
    }
    assert [found[each["partition"], each["offset"]] for each in answer["offsets"]] == [str(n) for n in range(10_000)]
    path = f"{V1}/topics/many/messages"
    assert rest.post(path, content=b"1\n" * 10_000, headers=NDJSON).json()["count"] == 10_000
    refused(rest.post(path, content=b"1\n" * 10_001, headers=NDJSON), 422, "invalid")
    refused(rest.post(path, content=b"\n" * (4 << 20), headers=NDJSON), 422, "invalid")


def test_what_kafkas_clients_write_is_read(rest: httpx.Client, node: ServeProcess) -> None:
    new_topic(rest, "both", 3)
    kafka = Producer({"bootstrap.servers": node.kafka, "partitioner": "murmur2_random"})
    for n in range(30):
        kafka.produce("both", key=str(n), value=str(n))
    kafka.flush()
    over_http = [rest.post(f"{V1}/produce", json={"topic": "both", "key": str(n), "value": str(n)}) for n in range(30)]
    by_partition = {p: values(rest, "both", partition=p) for p in range(3)}
    for n, answer in enumerate(over_http):
        assert by_partition[answer.json()["partition"]].count(str(n)) == 2, "a key has its partition, whoever writes"
    browsed = rest.get(f"{V1}/topics/both/messages", params={"limit": 60}).json()
    assert sorted(record["value"] for record in browsed) == sorted(str(n) for n in range(30) for _ in range(2))
    assert len(rest.get(f"{V1}/topics/both/messages", params={"limit": 5}).json()) == 5


def test_an_idempotency_key_appends_once_also_after_a_restart(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path, "--roles", "api,agent")
    records = [{"value": n, "key": str(n % 5)} for n in range(20)] + [{"value": "no key"}]
    body = {"topic": "once", "records": records}
    with started(node):
        create_topic(node.kafka, "once", 3)
        first = httpx.post(
            f"{node.http}{V1}/produce/batch", json=body, headers={"idempotency-key": "a"}, timeout=WAIT_S
        )
        node.kill()
        node.start()
        until(lambda: len(leaders(node.kafka, "once")) == 3, what="it leads again")
        again = httpx.post(
            f"{node.http}{V1}/produce/batch", json=body, headers={"idempotency-key": "a"}, timeout=WAIT_S
        )
        assert (first.status_code, again.json()) == (200, first.json())
        other = httpx.post(
            f"{node.http}{V1}/produce/batch", json=body, headers={"idempotency-key": "b"}, timeout=WAIT_S
        )
        assert other.json() != first.json()
        fewer = {"topic": "once", "records": records[:7]}
        answer = httpx.post(
            f"{node.http}{V1}/produce/batch", json=fewer, headers={"idempotency-key": "a"}, timeout=WAIT_S
        )
        assert answer.status_code in (422, 504)
        assert "Idempotency-Key" in answer.text
        keys = [[("idempotency-key", "")], [("idempotency-key", "a"), ("idempotency-key", "b")]]
        for headers in keys:
            answer = httpx.post(f"{node.http}{V1}/produce/batch", json=body, headers=headers, timeout=WAIT_S)
            assert answer.status_code in (400, 422), "no key would be the wrong one"
        changed = {"topic": "once", "records": [*records[:-1], {"value": "another"}]}
        answer = httpx.post(
            f"{node.http}{V1}/produce/batch", json=changed, headers={"idempotency-key": "a"}, timeout=WAIT_S
        )
        assert answer.status_code in (422, 504), "other records, as many as before"
        assert "Idempotency-Key" in answer.text
        with httpx.Client(base_url=node.http, timeout=WAIT_S) as rest:
            assert sum(len(values(rest, "once", partition=p)) for p in range(3)) == 2 * len(records)


def test_positions_waits_and_pages(rest: httpx.Client) -> None:
    new_topic(rest, "pages")
    rest.post(f"{V1}/topics/pages/messages", content="\n".join(map(str, range(10))).encode(), headers=NDJSON)
    page = consume(rest, "pages", maxRecords=4)
    assert (len(page["records"]), page["nextOffset"], page["endOffset"]) == (4, 4, 10)
    assert values(rest, "pages", offset=8) == ["8", "9"]
    assert values(rest, "pages", offset="latest") == []
    assert values(rest, "pages", offset="-1h") == [str(n) for n in range(10)]
    assert consume(rest, "pages", offset="2100-01-01T00:00:00Z")["nextOffset"] == 10
    refused(rest.get(f"{V1}/consume", params={"topic": "pages", "offset": 11}), 422, "invalid")
    refused(rest.get(f"{V1}/consume", params={"topic": "pages", "offset": "soon"}), 422, "invalid")
    refused(rest.get(f"{V1}/consume", params={"topic": "pages", "partition": 1}), 422, "invalid")
    refused(rest.get(f"{V1}/consume", params={"topic": "none"}), 404, "not-found")
    refused(rest.get(f"{V1}/consume", params={"topic": "pages", "maxRecords": 0}), 400, "malformed")
    waiting: list[list[str | None]] = []
    reader = threading.Thread(target=lambda: waiting.append(values(rest, "pages", offset=10, waitMs=50_000)))
    reader.start()
    rest.post(f"{V1}/produce", json={"topic": "pages", "value": "late"})
    reader.join(WAIT_S)
    assert waiting == [["late"]]


def test_the_last_records_are_the_last_ones_however_large(rest: httpx.Client) -> None:
    new_topic(rest, "large")
    for n in range(12):
        rest.post(f"{V1}/produce", json={"topic": "large", "value": f"{n:02}" + "x" * 200_000})
    shown = [record["value"][:2] for record in rest.get(f"{V1}/topics/large/messages").json()]
    assert shown == [f"{n:02}" for n in range(12)][-len(shown) :]
    assert len(shown) > 1


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ('{"topic": "shapes", "value": 1, "headers": {"h": 1}}', "#/headers"),
        ('{"topic": "shapes", "value": 1, "extra": 1}', ""),
        ('{"topic": "shapes", "value": 1, "acks": "none"}', "#/acks"),
        ('{"topic": "shapes"', None),
        ('{"topic": "shapes"}', None),
    ],
)
def test_a_body_that_is_wrong_is_named(rest: httpx.Client, body: str, pointer: str | None) -> None:
    answer = rest.post(f"{V1}/produce", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    if pointer:
        assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    no_utf8 = rest.post(f"{V1}/produce", content=b'{"topic": "\xff"}', headers={"content-type": "application/json"})
    refused(no_utf8, 400, "malformed")
    form = rest.post(f"{V1}/produce", content=body, headers={"content-type": "text/plain"})
    refused(form, 415, "media-type")


def test_groups_are_listed_moved_and_deleted(rest: httpx.Client) -> None:
    new_topic(rest, "grouped", 2)
    rest.post(f"{V1}/topics/grouped/messages", params={"partition": 1}, content=b"1\n2\n3\n", headers=NDJSON)
    groups, moved = f"{V1}/consumer-groups", {"topic": "grouped", "partition": 1}
    refused(rest.get(f"{groups}/readers"), 404, "not-found")
    commit = {"groupId": "readers", "offsets": [{**moved, "offset": 1}]}
    assert rest.post(f"{groups}/commit", json=commit).json() == [{**moved, "fromOffset": None, "toOffset": 1}]
    assert {"groupId": "readers", "state": "empty"} in rest.get(groups).json()
    lag = rest.get(f"{groups}/readers/lag").json()
    assert (lag["totalLag"], lag["partitions"][0]["committedOffset"]) == (2, 1)
    dry = {"topics": ["grouped"], "partitions": [1], "to": "latest", "dryRun": True}
    assert rest.post(f"{groups}/readers/reset", json=dry).json() == [{**moved, "fromOffset": 1, "toOffset": 3}]
    assert rest.get(f"{groups}/readers/lag").json()["totalLag"] == 2, "a dry run moves nothing"
    rest.post(f"{groups}/readers/reset", json={"topics": ["grouped"], "partitions": [1], "shift": 1})
    assert rest.get(f"{groups}/readers/lag").json()["totalLag"] == 1
    assert rest.post(f"{groups}/readers/seek", json={**moved, "offset": "earliest"}).json()[0]["toOffset"] == 0
    refused(rest.post(f"{groups}/readers/reset", json={"topics": ["grouped"]}), 422, "invalid")
    refused(rest.post(f"{groups}/commit", json={"groupId": "x", "offsets": [{**moved, "offset": -1}]}), 422, "invalid")
    refused(rest.post(f"{groups}/commit", json={"groupId": "x", "offsets": []}), 422, "invalid")
    for body in ({"replicationFactor": 1 << 40}, {"partitions": 1 << 40}, {"config": {"retention.ms": "1\0"}}):
        refused(rest.post(f"{V1}/topics", json={"name": "odd", **body}), 422, "invalid")
    for count in (-1, 0, 100_001, 1 << 40):
        refused(rest.patch(f"{V1}/topics/grouped", json={"partitions": count}), 422, "invalid")
    for name in ("", "a\0b"):
        refused(
            rest.post(f"{groups}/commit", json={"groupId": name, "offsets": [{**moved, "offset": 0}]}), 422, "invalid"
        )
    assert rest.delete(f"{groups}/readers").status_code == 204
    refused(rest.delete(f"{groups}/readers"), 404, "not-found")


def test_agents_and_leases_are_listed(rest: httpx.Client) -> None:
    (agent,) = rest.get(f"{V1}/agents").json()
    assert (agent["live"], agent["leases"] > 0) == (True, True)
    assert rest.get(f"{V1}/agents/{agent['id']}").json()["node"] == agent["node"]
    refused(rest.get(f"{V1}/agents/nobody"), 404, "not-found")
    assert {lease["holder"] for lease in rest.get(f"{V1}/leases").json()} == {agent["id"]}
    assert rest.get(f"{V1}/transfers").json() == []


def events(lines: Iterator[str], count: int) -> list[tuple[str, Any]]:
    """The next events of a stream: their ids and records."""
    found: list[tuple[str, Any]] = []
    event_id = ""
    while len(found) < count:
        line = next(lines)
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: "):
            found.append((event_id, json.loads(line.removeprefix("data: "))["value"]))
    return found


def test_a_tail_goes_on_where_its_last_event_was(rest: httpx.Client) -> None:
    new_topic(rest, "followed", 2)
    path = f"{V1}/topics/followed"
    with rest.stream("GET", f"{path}/tail") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert next(lines).startswith("retry:")  # the positions are known by now
        rest.post(f"{path}/messages", params={"partition": 1}, content=b"1\n2\n3\n", headers=NDJSON)
        seen = events(lines, 2)
    assert seen == [("0:0,1:1", "1"), ("0:0,1:2", "2")]
    rest.post(f"{path}/messages", params={"partition": 0}, content=b"4\n", headers=NDJSON)
    with rest.stream("GET", f"{path}/tail", headers={"last-event-id": seen[-1][0]}) as stream:
        assert sorted(value for _, value in events(stream.iter_lines(), 2)) == ["3", "4"]
    refused(rest.get(f"{path}/tail", headers={"last-event-id": "x"}), 422, "invalid")


def test_tails_are_limited_and_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path, "--roles", "api,agent", "--set", "http.tails_max=1", "--set", "http.stop_ms=60000")
    with started(node), httpx.Client(base_url=node.http, timeout=WAIT_S) as rest:
        new_topic(rest, "followed")
        with rest.stream("GET", f"{V1}/topics/followed/tail") as stream:
            lines = stream.iter_lines()
            next(lines)
            refused(rest.get(f"{V1}/topics/followed/tail"), 503, "unavailable")
            assert node.terminate() == 0
            assert [line for line in lines if line.startswith("data")] == []


def test_reads_that_wait_hold_up_nobody(tmp_path: Path) -> None:
    limits = ("http.requests_max=2", "http.waits_max=3", "http.stop_ms=60000")
    node = ServeProcess(tmp_path, "--roles", "api,agent", *(each for limit in limits for each in ("--set", limit)))
    poll: dict[str, Any] = {"topic": "quiet", "waitMs": 50_000}
    read: list[list[str | None]] = []

    def waiting(count: int) -> bool:
        return f"\nholdfast_http_waits {count}\n" in httpx.get(f"{node.http}/metrics", timeout=WAIT_S).text

    def start_waiting() -> list[threading.Thread]:
        def wait() -> None:
            with httpx.Client(base_url=node.http, timeout=WAIT_S) as client:
                read.append(values(client, **poll))

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for each in threads:
            each.start()
        until(lambda: waiting(3), what="three reads wait")
        return threads

    with started(node), httpx.Client(base_url=node.http, timeout=WAIT_S) as rest:
        new_topic(rest, "quiet")
        threads = start_waiting()
        refused(rest.get(f"{V1}/consume", params=poll), 503, "unavailable")
        assert rest.post(f"{V1}/produce", json={"topic": "quiet", "value": "x"}).json()["offset"] == 0
        for each in threads:
            each.join(WAIT_S)
        assert read == [["x"]] * 3
        with pytest.raises(httpx.ReadTimeout):
            rest.get(f"{V1}/consume", params={**poll, "offset": "latest"}, timeout=0.5)
        until(lambda: waiting(0), what="nobody waits for a client that has gone")
        poll["offset"] = "latest"
        threads = start_waiting()
        assert node.terminate() == 0
        for each in threads:
            each.join(WAIT_S)
        assert read[3:] == [[]] * 3


def test_any_node_answers_and_the_death_of_a_leader_loses_and_doubles_nothing(tmp_path: Path) -> None:
    shared = ("--store", f"sqlite:///{tmp_path}/store.db", "--objects", f"file://{tmp_path}/objects")
    quick = ("--set", "session.ttl_ms=6000", "--set", "session.renew_ms=500", "--set", "session.margin_ms=500")
    ann, bob = (
        ServeProcess(tmp_path / name, "--roles", "api,agent", "--agent-id", name, *shared, *quick)
        for name in ("ann", "bob")
    )
    with started(ann, bob), httpx.Client(base_url=ann.http, timeout=WAIT_S) as rest:
        new_topic(rest, "spread", 4, config={"holdfast.durability": "object"})
        until(lambda: set(leaders(ann.kafka, "spread").values()) == {number(ann), number(bob)}, what="both lead some")
        sent = []
        for n in range(40):
            if n == 20:
                bob.kill()
            answer = rest.post(f"{V1}/produce", json={"topic": "spread", "partition": n % 4, "value": n})
            assert answer.status_code == 200, answer.text
            sent.append((answer.json()["partition"], answer.json()["offset"], str(n)))
        read = [
            (partition, record["offset"], record["value"])
            for partition in range(4)
            for record in consume(rest, "spread", partition=partition)["records"]
        ]
        assert sorted(read) == sorted(sent)

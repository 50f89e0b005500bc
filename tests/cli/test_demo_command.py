"""`holdfast demo`: its parts against a real broker and ClickHouse, and the whole of it once, with Spark."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from tests.support.command_line import Run
from tests.support.server_process import ServeProcess, create_topic, environment, read, started
from tests.support.waiting import until

from holdfast.cli.clickhouse_access import ClickHouseAccess
from holdfast.cli.demo.events import EventStream, orders
from holdfast.cli.demo.row_count import CountedTable, RowCount
from holdfast.cli.demo.server import is_ready, own_server
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.errors import UnavailableError


def test_orders_are_the_same_but_for_their_times() -> None:
    first, second = ([{**each, "at": ""} for each in islice(orders(7), 50)] for _ in range(2))
    assert first == second
    assert [each["id"] for each in first] == list(range(50))


def test_events_are_sent_at_their_rate_and_all_are_acknowledged(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", "--roles", "api,agent")
    with started(node):
        create_topic(node.kafka, "events", 1)
        stream = EventStream(node.kafka, "events", rate=500)
        stream.start()
        until(lambda: stream.acknowledged >= 300, what="events are acknowledged")
        stream.finish()
        assert stream.sent == stream.acknowledged
        values = [json.loads(each) for each in read(node.kafka, "events", stream.acknowledged)]
        assert [each["id"] for each in values] == list(range(stream.acknowledged))
        until(lambda: is_ready(node.http), what="ready")
        node.kill()
        assert not is_ready(node.http if node.addresses.exists() else "http://127.0.0.1:1")


def test_rows_are_counted_where_they_are(clickhouse: ClickHouseServer) -> None:
    access = ClickHouseAccess.from_url(clickhouse.url)
    table = CountedTable(access, "demo_rows")
    assert table.count() == RowCount(0, 0), "no table, no rows"
    clickhouse.query(
        "CREATE TABLE demo_rows (_topic String, _partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY _offset"
    )
    clickhouse.query("INSERT INTO demo_rows VALUES ('t', 0, 1), ('t', 0, 2), ('t', 0, 2), ('t', 1, 2)")
    assert table.count() == RowCount(4, 3)
    clickhouse.query("CREATE TABLE demo_rows_dlq AS demo_rows")
    clickhouse.query("CREATE TABLE demoXrows AS demo_rows")
    table.drop()
    assert table.count() == RowCount(0, 0)
    assert access.query("SHOW TABLES LIKE 'demo%rows%'").split() == [b"demoXrows"], "what is not its own stays"
    clickhouse.query("DROP TABLE demoXrows")
    with pytest.raises(UnavailableError):
        CountedTable(ClickHouseAccess.from_url("http://default:wrong@127.0.0.1:1"), "demo_rows").count()
    wrong = ClickHouseAccess.from_url(clickhouse.url.replace(clickhouse.password, "wrong"))
    with pytest.raises(UnavailableError) as refused:
        CountedTable(wrong, "demo_rows").count()
    assert clickhouse.password not in str(refused.value)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(UnavailableError) as failed, own_server(str(tmp_path)):
        pass
    assert "data" in str(failed.value)


@pytest.mark.parametrize("options", [("--rate", "0"), ("--rate", "fast"), ("--seconds", "0")])
def test_wrong_options_are_refused(run: Run, options: tuple[str, ...]) -> None:
    assert run("demo", *options, "--http", "127.0.0.1:1").code == 2


def test_a_named_server_that_is_not_ready_is_unavailable(run: Run) -> None:
    done = run("demo", "--http", "127.0.0.1:1")
    assert (done.code, "not ready" in done.err) == (3, True)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_whole_demo_until_ctrl_c_stores_every_event_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    argv = [sys.executable, "-m", "holdfast", "demo", "--own", "--json", "--rate", "300"]
    with (tmp_path / "said").open("wb") as errors:
        demo = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
    assert demo.stdout is not None
    looks = []
    try:
        for line in demo.stdout:
            looks.append(json.loads(line))
            if looks[-1]["stored"] and demo.poll() is None and len(looks) and not _told(looks):
                demo.send_signal(signal.SIGINT)
        assert demo.wait(100) == 0, (tmp_path / "said").read_text()
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
        demo.stdout.close()
    last = looks[-1]
    assert last["exact"], last
    assert last["produced"] == last["stored"] == last["distinct"] > 0
    assert not list(tmp_path.glob("holdfast-demo-*"))
    assert str(tmp_path) not in _commands(), "nobody is left who works there"


def _told(looks: list[dict[str, object]]) -> bool:
    """Whether Ctrl-C has been pressed at an earlier look."""
    return sum(1 for look in looks if look["stored"]) > 1


def _commands() -> str:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(each.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(line for line in found if "pytest" not in line)

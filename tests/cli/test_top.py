"""What `holdfast top` shows, from pages of metrics: rates, quantiles, nodes that go away and processes that start anew."""

import pytest

from holdfast.cli.main import main
from holdfast.cli.output import USAGE
from holdfast.cli.top.display import duration_text, render, size_text
from holdfast.cli.top.exposition import MetricsPage
from holdfast.cli.top.snapshot import NodeLook, Snapshot, take_snapshot

SECOND = 1_000_000_000


def look(text: str | None, at_s: int = 0, url: str = "http://n1:8080") -> NodeLook:
    if text is None:
        return NodeLook(url=url, at_ns=at_s * SECOND, reason="unreachable: gone")
    return NodeLook(url=url, at_ns=at_s * SECOND, page=MetricsPage(text))


def appended(**topics: int) -> str:
    return "".join(
        f'holdfast_topic_appended_records_total{{topic="{topic}"}} {count}\n'
        f'holdfast_topic_unpublished_bytes{{topic="{topic}"}} {count * 10}\n'
        for topic, count in topics.items()
    )


def records_per_s(snapshot: Snapshot) -> dict[str, float]:
    return {row.topic: row.records_per_s for row in snapshot.topics}


def test_rates_are_per_second_of_all_nodes_and_topics_are_sorted() -> None:
    nodes = [
        (look(appended(a=100, b=0)), look(appended(a=120, b=2), at_s=2)),
        (look(appended(a=5), url="http://n2:8080"), look(appended(a=9), at_s=2, url="http://n2:8080")),
    ]
    by_records = take_snapshot(nodes, sort="records")
    assert records_per_s(by_records) == {"a": 12.0, "b": 1.0}
    assert [row.topic for row in by_records.topics] == ["a", "b"]
    assert by_records.topics[0].backlog_bytes == 1290
    assert [row.topic for row in take_snapshot(nodes, sort="name").topics] == ["a", "b"]
    assert [row.topic for row in take_snapshot(nodes[:1], sort="backlog").topics] == ["a", "b"]


def test_a_node_that_goes_away_is_a_row_and_the_others_go_on() -> None:
    gone = look(None, at_s=1, url="http://n2:8080")
    snapshot = take_snapshot(
        [(look(appended(a=1)), look(appended(a=3), at_s=1)), (look(appended(a=1), url=gone.url), gone)], sort="records"
    )
    assert [(row.node, row.up) for row in snapshot.nodes] == [("http://n1:8080", True), ("http://n2:8080", False)]
    assert records_per_s(snapshot) == {"a": 2.0}
    back = take_snapshot([(gone, look(appended(a=50), at_s=2))], sort="records")
    assert records_per_s(back) == {"a": 0.0}, "of one look alone there is no rate"


def test_a_process_that_started_anew_counts_from_zero() -> None:
    snapshot = take_snapshot([(look(appended(a=1_000)), look(appended(a=30), at_s=1))], sort="records")
    assert records_per_s(snapshot) == {"a": 30.0}


def test_durations_are_those_since_the_look_before() -> None:
    def page(fast: int, slow: int) -> str:
        name = "holdfast_wal_write_seconds_bucket"
        return f'{name}{{le="0.001"}} {fast}\n{name}{{le="0.1"}} {fast + slow}\n{name}{{le="+Inf"}} {fast + slow}\n'

    (node,) = take_snapshot([(look(page(100, 0)), look(page(200, 50), at_s=1))], sort="name").nodes
    assert node.fsync_p99_s == 0.1
    (idle,) = take_snapshot([(look(page(100, 9)), look(page(100, 9), at_s=1))], sort="name").nodes
    assert idle.fsync_p99_s is None


def test_groups_are_listed_by_lag_with_the_partition_most_behind() -> None:
    def page(lag: int) -> str:
        return (
            f'holdfast_group_lag_sum_records{{group="g"}} {lag}\n'
            f'holdfast_group_lag_sum_records{{group="h"}} {lag * 3}\n'
            f'holdfast_group_lag_records{{group="g",topic="a",partition="0"}} 1\n'
            f'holdfast_group_lag_records{{group="g",topic="a",partition="7"}} {lag - 1}\n'
        )

    rows = take_snapshot([(look(page(10)), look(page(20), at_s=2))], sort="name").groups
    assert [(row.group, row.lag, row.change_per_s, row.worst) for row in rows] == [
        ("h", 60, 15.0, ""),
        ("g", 20, 5.0, "a:7"),
    ]


def test_labels_are_read_whatever_is_in_them() -> None:
    page = MetricsPage('x{topic="a\\"b\\\\c}\\n",n="1"} 2.5\n# HELP x y\nx_nothing\n')
    assert page.samples("x") == [({"topic": 'a"b\\c}\n', "n": "1"}, 2.5)]


def test_the_view_is_no_taller_than_the_terminal_and_says_what_it_leaves_out() -> None:
    from rich.console import Console

    snapshot = take_snapshot(
        [(look(""), look(appended(**{f"t{n:03}": n for n in range(200)}), at_s=1))], sort="records"
    )
    console = Console(width=100, record=True, file=None, quiet=True)
    lines = console.render_lines(render(snapshot, height=30), pad=False)
    assert len(lines) <= 30
    text = "\n".join("".join(part.text for part in line) for line in lines)
    assert "topics, 1" in text
    assert " more" in text


def test_sizes_and_durations_are_written_for_people() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 GiB"]
    assert [duration_text(each) for each in (None, 0.0025, 1.0, float("inf"))] == ["–", "≤ 2.5 ms", "≤ 1 s", "> 1 s"]


def test_an_interval_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "0"]) == USAGE
    assert "invalid --interval 0.0: must be at least 0.1" in capsys.readouterr().err

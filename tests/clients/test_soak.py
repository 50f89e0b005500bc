"""Restarts, kills and pauses under load: what was acknowledged is read, once and in order, by everybody."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.clients.soak.plan import SHORT, Plan
from tests.clients.soak.run import soak
from tests.clients.soak.verdict import judge_log, twice, unread
from tests.support.broker import Broker

LONG_S = float(os.environ.get("HOLDFAST_SOAK_SECONDS", "600"))  # noqa: TID251 (how long is told per run)


def check(broker: Broker, folder: Path, plan: Plan) -> None:
    report = soak(broker, folder, plan)
    print(json.dumps(asdict(report), indent=2))
    assert report.clean, report
    assert report.kills > 0
    assert report.terms > 0
    assert report.pauses > 0


@pytest.mark.timeout(240)
def test_nothing_is_lost_or_doubled_while_the_server_comes_and_goes(own_broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    folder.mkdir()
    check(own_broker, folder, SHORT)


@pytest.mark.long
@pytest.mark.timeout(LONG_S + 900)
def test_nothing_is_lost_or_doubled_for_ten_minutes(own_broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    folder.mkdir()
    check(own_broker, folder, replace(Plan(), seconds=LONG_S))


def test_a_commit_that_was_forgotten_is_found() -> None:
    assert twice([(0, 0, 9), (0, 10, 19), (1, 0, 9)]) == 0
    assert twice([(0, 0, 9), (0, 5, 14), (1, 0, 9)]) == 5


def test_an_unacknowledged_offset_is_found() -> None:
    assert unread([(0, 0, 9), (0, 5, 14), (1, 0, 4)], {0: 15, 1: 5}) == 0
    assert unread([(0, 0, 4), (0, 7, 14), (1, 0, 4)], {0: 15, 1: 6}) == 3


def test_records_lost_doubled_and_swapped_are_found(tmp_path: Path) -> None:
    (tmp_path / "one.acknowledged").write_bytes(b"a:1:\na:2:\na:3:\nb:1:\n")
    (tmp_path / "one.failed").write_bytes(b"b:2:\n")
    assert judge_log(tmp_path, [b"a:1:", b"a:2:", b"a:3:", b"b:1:", b"b:2:"])[2].clean
    acknowledged, failed, verdict = judge_log(tmp_path, [b"a:1:", b"a:3:", b"a:2:", b"a:3:", b"c:1:"])
    assert (acknowledged, failed) == (4, 1)
    assert (verdict.lost, verdict.duplicated, verdict.unknown) == ([b"b:1:"], [b"a:3:"], [b"c:1:"])
    assert verdict.reordered == [b"a:2:"]

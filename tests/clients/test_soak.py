"""Restarts, kills and pauses under load: what was acknowledged is read, once and in order, by everybody."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.clients.broker import Broker
from tests.clients.soak.run import SHORT, Plan, soak

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

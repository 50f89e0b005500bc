"""Walrus's scenarios over the text protocol on every store: nothing acknowledged is lost, nothing is out of order.

The long form: tests/app/test_text_scenarios.py and tests/app/embedded_etcd show the same paths once.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.nodes import STORES, ScenarioCluster
from tests.scenarios.scenarios import SCENARIOS, applicable


@pytest.fixture(scope="module", params=STORES)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ScenarioCluster]]:
    store: str = request.param
    folder: Path = tmp_path_factory.mktemp(store)
    with ScenarioCluster.running(folder, store) as cluster:
        yield store, cluster


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_and_nothing_is_out_of_order(running: tuple[str, ScenarioCluster], name: str) -> None:
    store, cluster = running
    if name not in applicable(store, cluster.store.kills):
        pytest.skip(f"{name} means nothing on {store} here")
    outcome = SCENARIOS[name](cluster)
    assert outcome.clean, outcome

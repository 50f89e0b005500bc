"""The Java client: its producer, consumer and Admin, by scenarios that run side by side in one JVM.

What each scenario shows is in `java/conformance`; here each is one test.
"""

import json
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.clients.java import runner

from holdfast.vocabulary.errors import UnavailableError

Results = dict[str, runner.Result]

# Whichever test comes first waits for all scenarios: in one worker, so that one of them does.
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("java")]


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What every selected scenario found; one worker of the run finds it for all."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent
    folder = folder / "java"
    folder.mkdir(exist_ok=True)
    selected = [
        str(item.callspec.params["scenario"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_scenario" and item.path == Path(__file__)
    ]
    kept = folder / "results.json"
    with runner.locked(folder / "lock"):
        if not kept.exists():
            try:
                runner.compiled()
            except UnavailableError as missing:
                pytest.skip(str(missing))
            broker: Broker = request.getfixturevalue("broker")
            found = runner.run(broker, selected, folder)
            kept.write_text(json.dumps({name: [each.outcome, each.detail] for name, each in found.items()}))
    return {name: runner.Result(*each) for name, each in json.loads(kept.read_text()).items()}


@pytest.mark.parametrize("scenario", runner.scenarios())
def test_scenario(scenario: str, results: Results) -> None:
    result = results[scenario]
    if result.outcome == "skipped":
        pytest.skip(result.detail)
    assert result.outcome == "passed", result.detail

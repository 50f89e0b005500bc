"""The Java client: its producer, consumer and Admin, by scenarios that run side by side in one JVM.

What each scenario shows is in `java/conformance`; here each is one test.
"""

import json
from pathlib import Path

import pytest
from tests.clients.broker import Broker
from tests.clients.java import running

from holdfast.vocabulary.errors import UnavailableError

Results = dict[str, running.Result]

pytestmark = pytest.mark.timeout(300)  # whichever test comes first waits for all scenarios


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
    with running.locked(folder / "lock"):
        if not kept.exists():
            try:
                running.compiled()
            except UnavailableError as missing:
                pytest.skip(str(missing))
            broker: Broker = request.getfixturevalue("broker")
            found = running.run(broker, selected, folder)
            kept.write_text(json.dumps({name: [each.outcome, each.detail] for name, each in found.items()}))
    return {name: running.Result(*each) for name, each in json.loads(kept.read_text()).items()}


@pytest.mark.parametrize("scenario", running.scenarios())
def test_scenario(scenario: str, results: Results) -> None:
    result = results[scenario]
    if result.outcome == "skipped":
        pytest.skip(result.detail)
    assert result.outcome == "passed", result.detail

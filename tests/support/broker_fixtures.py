"""The fixtures `broker`, `own_broker` and `new_broker`, for the conftest of every folder whose tests use one."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.broker import CHOICE, Broker, owned, serving

NewBroker = Callable[..., Broker]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the whole run of this worker: use topics and groups named by `broker.unique`."""
    with serving(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that this test may kill, freeze and start again."""
    if not owned():
        pytest.skip(f"the broker at {CHOICE} belongs to somebody else: it cannot be killed")
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[NewBroker]:
    """Starts Holdfast with the given flags; skips where another broker was chosen, which does not know them."""
    with ExitStack() as started:

        def start(*options: str) -> Broker:
            if CHOICE != "holdfast":
                pytest.skip(f"flags of `holdfast serve` mean nothing to {CHOICE}")
            return started.enter_context(serving(tmp_path, *options))

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The end of the broker's log belongs to the report of a failure."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        brokers = [used for used in item.funcargs.values() if isinstance(used, Broker)]
        for used in brokers:
            report.sections.append((f"log of {used.kind} at {used.bootstrap}", used.log))
    return report

"""The fixture `broker`, for the conftest of every folder whose tests share one."""

from collections.abc import Iterator

import pytest
from tests.support.broker import Broker, serving


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the whole run of this worker: use topics and groups named by `broker.unique`."""
    with serving(tmp_path_factory.mktemp("broker")) as running:
        yield running

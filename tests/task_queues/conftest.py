"""One server for the tests of task queues."""

from collections.abc import Iterator

import pytest
from tests.support.server_process import BROKER_ONLY, ServeProcess, started


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    node = ServeProcess(tmp_path_factory.mktemp("node"), *BROKER_ONLY)
    with started(node):
        yield node

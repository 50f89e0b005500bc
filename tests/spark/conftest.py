"""A broker for tests that read and write topics through Spark; `spark` itself is in `tests/conftest.py`."""

from collections.abc import Iterator

import pytest
from tests.support.broker import Broker, serving


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the whole run of this worker: use topics named by `broker.unique`."""
    with serving(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(autouse=True)
def active(request: pytest.FixtureRequest) -> None:
    """The shared session is this thread's active one: a session that another test made has taken its place."""
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)

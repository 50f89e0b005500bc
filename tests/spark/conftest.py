"""A broker for tests that read and write topics through Spark; `spark` itself is in `tests/conftest.py`."""

import pytest
from tests.support.broker_fixtures import broker, new_broker  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def active(request: pytest.FixtureRequest) -> None:
    """The shared session is this thread's active one: a session that another test made has taken its place."""
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)

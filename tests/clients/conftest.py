"""One broker per worker for tests that only use it, one of their own for tests that kill or freeze it."""

from tests.support.broker_fixtures import (  # noqa: F401 (fixtures, and a hook)
    broker,
    new_broker,
    own_broker,
    pytest_runtest_makereport,
)

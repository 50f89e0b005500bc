"""A broker for tests of the clients."""

from tests.support.broker_fixture import broker  # noqa: F401 (a fixture)

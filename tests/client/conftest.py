"""A broker for tests of the clients."""

from tests.support.broker_fixtures import broker  # noqa: F401 (a fixture)

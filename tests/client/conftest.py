"""Brokers for tests of the clients."""

from tests.support.broker_fixtures import broker, own_broker  # noqa: F401 (fixtures)

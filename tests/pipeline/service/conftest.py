"""One broker and one ClickHouse for all tests of the service; a store and names of its own for each."""

from tests.support.pipeline_service_fixtures import node, world  # noqa: F401 (fixtures)

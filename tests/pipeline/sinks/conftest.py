"""Every sink behind one noun, so that one suite holds all of them to the contract."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.file_destinations import delta_place, iceberg_place, parquet_place
from tests.support.sink_destinations import SinkDestination, clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)

PLACES = {"parquet": parquet_place, "delta": delta_place, "iceberg": iceberg_place}


@pytest.fixture(params=["clickhouse", *PLACES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkDestination]:
    if request.param == "clickhouse":
        yield request.getfixturevalue("clickhouse").place()
        return
    with ExitStack() as stack:
        yield stack.enter_context(PLACES[request.param](tmp_path))

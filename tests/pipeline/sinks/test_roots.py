"""Sinks of files write only below the roots that the worker allows."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.sink_values import target_of

from holdfast.pipeline.driver.settings import DriverStart, parse_start_line, start_line
from holdfast.pipeline.model.definition import ClickHouseConfig, DeltaConfig, IcebergConfig, ParquetConfig, SinkConfig
from holdfast.pipeline.sinks.factory import open_sink
from holdfast.pipeline.sinks.roots import check_sink_roots, parse_roots
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.vocabulary.errors import InvalidError

ROOTS = ("/data/lake", "s3://events/lake?access_key_id=hidden")


@pytest.mark.parametrize(
    "url",
    [
        "/data/lake",
        "/data/lake/orders",
        "file:///data/lake/orders",
        "/data/lake/a/../orders",
        "s3://events/lake",
        "s3://events/lake/orders?region=here",
    ],
)
def test_what_lies_below_a_root_is_allowed(url: str) -> None:
    check_sink_roots(ParquetConfig(url=url), ROOTS)
    check_sink_roots(DeltaConfig(url=url), ROOTS)


@pytest.mark.parametrize(
    "url",
    [
        "/data/lake2",
        "/data",
        "/data/lake/../../etc",
        "file:///data/lake/%2e%2e/etc",
        "lake/orders",
        "s3://events/lake2",
        "s3://events/lake/../other",
        "s3://others/lake",
        "gs://events/lake",
    ],
)
def test_anything_else_is_refused_with_the_roots(url: str) -> None:
    with pytest.raises(
        InvalidError, match=r"sink\.url.*below worker\.sink_roots: /data/lake, s3://events/lake"
    ) as refused:
        check_sink_roots(ParquetConfig(url=url), ROOTS)
    assert "hidden" not in str(refused.value)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "out").symlink_to("/etc")
    with pytest.raises(InvalidError):
        check_sink_roots(ParquetConfig(url=str(tmp_path / "lake" / "out")), (str(tmp_path / "lake"),))


@pytest.mark.parametrize(
    ("catalog", "warehouse", "name"),
    [
        ("sqlite:////data/lake/catalog.db", "/elsewhere", "sink.warehouse"),
        ("sqlite:////elsewhere/catalog.db", "/data/lake/tables", "sink.catalogUri"),
    ],
)
def test_of_iceberg_the_warehouse_and_a_catalog_in_a_file_count(catalog: str, warehouse: str, name: str) -> None:
    with pytest.raises(InvalidError, match=name):
        check_sink_roots(IcebergConfig(catalog_uri=catalog, warehouse=warehouse, table="a.b"), ROOTS)


def test_tables_and_topics_have_no_place_and_without_roots_everything_is_allowed() -> None:
    check_sink_roots(ClickHouseConfig(table="t"), ROOTS)
    check_sink_roots(ParquetConfig(url="/anywhere"), ())


@pytest.mark.parametrize("sink", [ParquetConfig(url="/elsewhere"), DeltaConfig(url="/elsewhere")])
def test_a_sink_elsewhere_is_not_opened(sink: SinkConfig) -> None:
    with pytest.raises(InvalidError, match=r"worker\.sink_roots"):
        open_sink(replace(target_of(sink), sink_roots=ROOTS))


def test_roots_are_checked_when_the_worker_is_configured_and_reach_its_driver() -> None:
    assert parse_roots(" /data/lake, s3://events/lake ,") == ("/data/lake", "s3://events/lake")
    for wrong in ("lake", "ftp://host/x"):
        with pytest.raises(InvalidError):
            WorkerSettings(sink_roots=wrong)
    start = DriverStart(store="sqlite:///x", sink_roots=ROOTS)
    assert parse_start_line(start_line(start)).sink_roots == ROOTS

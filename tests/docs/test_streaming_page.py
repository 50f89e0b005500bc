"""The pipeline on the page of streaming queries is the example, and both are valid."""

import re
from pathlib import Path
from typing import Any

import yaml

from holdfast.cli.pipeline.file import read_pipeline_file
from holdfast.pipeline.catalog.parts import read_parts
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.model.definition import Revision
from holdfast.pipeline.model.query import chosen_engine

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_example(tmp_path: Path) -> None:
    text = (ROOT / "docs/streaming.md").read_text()
    shown = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(shown) == 1
    example: dict[str, Any] = yaml.safe_load((ROOT / "examples/order_counts.yaml").read_text())
    del example["description"]
    assert yaml.safe_load(shown[0]) == example


def test_the_example_is_a_streaming_query() -> None:
    file = read_pipeline_file(str(ROOT / "examples/order_counts.yaml"))
    made = compose(read_parts(file.parts), 1)
    assert isinstance(made, Revision)
    assert chosen_engine(made) == ("structured-streaming", "engine is structured-streaming")


def test_a_python_file_is_named_beside_the_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text("def pipeline(spark, sources):\n    return sources['orders']\n")
    (tmp_path / "counts.yaml").write_text(
        "name: counts\nengine: structured-streaming\nquery: {sources: [{topic: orders}], pythonFile: counts.py}\n"
        "sink: {kind: clickhouse, table: counts}\n"
    )
    file = read_pipeline_file(str(tmp_path / "counts.yaml"))
    assert file.parts["query"]["python"].startswith("def pipeline")
    assert file.parts["query"]["engine"] == "structured-streaming"
    assert isinstance(compose(read_parts(file.parts), 1), Revision)

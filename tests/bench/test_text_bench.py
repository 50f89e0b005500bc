"""The text benchmark runs from end to end against real servers."""

import pytest

pytest.importorskip("confluent_kafka", reason="topics are created with confluent-kafka")


def test_a_smoke_run_has_every_figure() -> None:
    from bench.text import run

    lines: list[str] = []
    figures = run(0.1, 1, lines.append)
    assert set(figures) == {"PUT 1", "PUT 64", "GET 1", "GET 64", "rotation"}
    assert all(value > 0 for figure in figures.values() for value in figure.values())
    assert lines

"""The benchmark of the log over HTTP runs from end to end against a real server."""

from bench.rest import run


def test_a_smoke_run_has_every_figure() -> None:
    lines: list[str] = []
    found = run(0.1, lines.append)
    over_grpc = {"gRPC, single", "gRPC, 100", "stream, 1", "stream, 100", "stream, 1,000"}
    assert set(found) == {"empty", "single", "JSON, 100", "NDJSON, 1,000", "consume, 500", *over_grpc}
    assert all(figure.requests > 0 for figure in found.values())
    assert len(lines) == len(found)

"""The benchmark of metrics and traces: what it compares, and a scrape from end to end."""

from bench.observability.__main__ import compare
from bench.observability.scrape import scrape_figures
from bench.observability.servers import ALL_TRACES, METRICS, OFF, TRACES


def test_ratios_are_of_turns_of_the_same_round_and_the_median_counts() -> None:
    reference = [100.0, 200.0, 50.0]
    rates = {
        OFF.name: reference,
        METRICS.name: [98.0, 196.0, 1.0],
        TRACES.name: [90.0, 180.0, 45.0],
        ALL_TRACES.name: reference,
    }
    found = {each.what: each for each in compare("batches", {"records/s and core": rates})}
    assert (found[METRICS.name].ratio, found[METRICS.name].met) == (0.98, True)
    assert (found[TRACES.name].ratio, found[TRACES.name].met) == (0.9, False)
    assert (found[ALL_TRACES.name].ratio, found[ALL_TRACES.name].met) == (1.0, None)


def test_a_scrape_is_measured_at_a_real_agent() -> None:
    figures = {each.what: each.ours for each in scrape_figures(20)}
    assert figures["processor"] > 0
    assert figures["series"] > 20

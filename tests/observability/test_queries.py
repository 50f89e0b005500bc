"""Dashboards and alerts: every query is valid, names metrics and labels that exist, and is run by a real Prometheus."""

import json
import re
import runpy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.observability.conftest import BusyServer
from tests.observability.test_metrics_page import documented, families
from tests.support.prometheus import MISSING, Prometheus, prometheus_program, running_prometheus
from tests.support.waiting import until

pytestmark = pytest.mark.xdist_group("observability")

ROOT = Path(__file__).parents[2]
GRAFANA, ALERTS = ROOT / "deploy" / "grafana", ROOT / "deploy" / "prometheus" / "alerts.yml"
SELECTOR = re.compile(r"\b((?:holdfast|process)_\w+)(\{[^}]*\})?")
SUFFIXES = re.compile(r"_(bucket|count|sum)$")


def dashboards() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> dict[str, str]:
    """Every query by where it stands, with Grafana's variables filled in."""
    found = {f"alert {rule['alert']}": rule["expr"] for rule in alerts()}
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                filled = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                assert "$" not in filled
                found[f"{name}: {panel['title']}: {target['legendFormat']}"] = filled
    return found


def test_the_dashboards_are_those_of_their_table() -> None:
    written = runpy.run_path(str(GRAFANA / "generate.py"))["files"]()
    assert {name: (GRAFANA / name).read_text() for name in written} == written
    assert sorted(written) == [path.name for path in sorted(GRAFANA.glob("*.json"))]
    assert len({dashboard["uid"] for dashboard in dashboards().values()}) == len(written) >= 6


def test_every_alert_links_to_what_to_do_about_it() -> None:
    for rule in alerts():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert rule["alert"] in headings
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_every_query_names_documented_metrics_and_their_labels() -> None:
    told = documented()
    for where, query in queries().items():
        named = SELECTOR.findall(query)
        assert named or 'up{job="holdfast"}' in query, where
        for name, matchers in named:
            histogram = SUFFIXES.sub("", name)
            assert name in told or told.get(histogram, ("",))[0] == "histogram", (where, name)
            _, labels = told.get(name) or told[histogram]
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert used <= labels | {"le", "instance"}, (where, name, used)


@pytest.fixture(scope="module")
def prometheus(busy: BusyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = prometheus_program()
    if program is None:
        pytest.skip(MISSING)
    target = busy.node.http.removeprefix("http://")
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), program, target, ALERTS) as running:
        until(lambda: running.query("count_over_time(up[1m]) >= 3"), what="it has scraped the server three times")
        yield running


def test_prometheus_runs_every_query_and_finds_what_it_selects(busy: BusyServer, prometheus: Prometheus) -> None:
    shown, asked = families(busy.page), queries()
    for query in set(asked.values()):
        prometheus.query(query)
    selectors = {selector: where for where, query in asked.items() for selector in SELECTOR.findall(query)}
    for (name, matchers), where in selectors.items():
        family = shown.get(name) or shown.get(SUFFIXES.sub("", name))
        if family is not None and family.samples:
            # The page may have been read after Prometheus scraped it last.
            until(
                partial(prometheus.query, f"count({name}{matchers})"),
                what=f"{where}: {name}{matchers} selects something",
            )
    assert prometheus.query('topk(10, max by (group) (holdfast_group_lag_sum_records{instance=~".*"}))')


def test_prometheus_evaluates_every_alert_and_none_fires_at_a_healthy_server(prometheus: Prometheus) -> None:
    def evaluated() -> dict[str, str]:
        found = prometheus.rules()
        return {} if "unknown" in found.values() else found

    health = until(evaluated)
    assert health == {rule["alert"]: "ok" for rule in alerts()}
    assert prometheus.query('ALERTS{alertstate="firing"}') == []

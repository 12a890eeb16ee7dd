"""/metrics of a daemon, and the documentation, alerts and dashboards that refer to it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from service.client import Control
from service.web._metrics import FAMILIES
from tests.lab.daemon.daemons import processes
from tests.lab.web.http_client import ask, await_answer, scrape, value, values

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
#: Labels of the samples by their names; those of a histogram have suffixes.
LABELS = {
    family.name + suffix: {*family.labels} | ({"le"} if suffix == "_bucket" else set())
    for family in FAMILIES
    for suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",))
}


def test_metrics_are_those_of_the_documentation_and_have_samples(url: str, control: Control) -> None:
    """docs/metrics.md has all families, and no other; only those of a bus are empty here."""
    control.request("submit", 30.0, kind="excite", arm="axis", due_s=1e6)
    await_answer(url, "/metrics", lambda answer: b"thetad_jobs{" in answer.body)
    found = scrape(url)
    assert {name: family.type for name, family in found.items()} == {
        family.name.removesuffix("_total"): family.kind for family in FAMILIES
    }
    text = (ROOT / "docs/metrics.md").read_text()
    assert re.findall(r"^\| `(thetad_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", text, re.M) == [
        (family.name, family.kind, ", ".join(f"`{label}`" for label in family.labels), family.help)
        for family in FAMILIES
    ]
    assert all(set(each.labels) == LABELS[each.name] for family in found.values() for each in family.samples)
    empty = {name for name, family in found.items() if not family.samples}
    assert empty == {"thetad_bus_lost_cycles", "thetad_bus_recoveries"}


def test_openmetrics_and_the_text_format(url: str) -> None:
    assert ask(url, "/metrics").headers["content-type"].startswith("text/plain; version=")
    found = ask(url, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert found.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert len(list(openmetrics(found.body.decode()))) == len(FAMILIES)
    for strange in ("application/openmetrics-text; version=x", "text/plain; version=1.0.0; escaping=%00", ",;=" * 500):
        assert ask(url, "/metrics", Accept=strange).status == 200


def test_values_count_and_agree_with_what_the_processes_say(url: str, control: Control) -> None:
    turns = "thetad_loop_period_seconds_count"
    first = later = scrape(url)
    while value(later, turns, arm="axis") == value(first, turns, arm="axis"):
        later = scrape(url)
    for family in FAMILIES:
        if family.kind != "gauge":
            for sample in first[family.name.removesuffix("_total")].samples:
                assert value(later, sample.name, **sample.labels) >= sample.value, sample
    for name, labels, expected in (
        ("ready", {}, 1.0), ("arm_ready", {"arm": "axis"}, 1.0),
        ("frames_received_total", {"arm": "over", "reader": "estimator"}, 2000.0),
        ("frames_published_total", {"arm": "over"}, 2000.0), ("loop_nominal_period_seconds", {"arm": "axis"}, 0.001),
        ("source_state", {"arm": "over", "state": "ended"}, 1.0),
        ("source_state", {"arm": "axis", "state": "running"}, 1.0), ("recorder_recording", {"arm": "axis"}, 1.0),
        ("events_total", {"kind": "daemon_ready"}, 1.0),
    ):  # fmt: skip
        assert value(later, f"thetad_{name}", **labels) == expected, name
    assert not values(later, turns, arm="over")  # it has no cycle to keep
    assert value(later, "thetad_loop_period_seconds_sum", arm="axis") > 0.0005 * value(later, turns, arm="axis")
    parameters = sum(values(later, "thetad_joint_parameters", arm="axis", joint="carriage"))
    assert parameters == len(control.request("snapshot", arm="axis")["theta"])
    assert 0.0 < value(later, "thetad_joint_forgetting_factor", arm="axis", joint="carriage") <= 1.0
    assert value(later, "thetad_recorder_bytes_total", arm="axis") > 1000.0
    told = {sample.labels["process"] for sample in later["thetad_process_cpu_seconds"].samples}
    assert told == {"supervisor", *processes(control)}
    files = [value(later, f"thetad_process_{what}_fds", process="web") for what in ("open", "max")]
    assert 0.0 < files[0] < files[1]


# ---------------------------------------------------------------- what refers to them


def check_expression(text: str) -> set[str]:
    """Check metrics and labels of a PromQL expression; return the labels of its metrics."""
    found = set(re.findall(r"\b(thetad_\w+)(\{[^}]*\})?", text))
    assert found, text
    for name, braces in found:
        assert name in LABELS, f"{name} is not told by /metrics"
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces)) <= LABELS[name] | {"instance", "job"}, (name, braces)
    labels = set.union(*(LABELS[name] for name, _ in found)) | {"instance", "job"}
    for listed in re.findall(r"\bby \(([^)]*)\)", text):
        assert set(re.split(r",\s*", listed)) <= labels, text
    return labels


def test_alerts_name_metrics_and_labels_that_there_are(url: str) -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        if rule["alert"] == "ThetadDown":
            continue  # `up` is Prometheus' own
        shown = re.findall(r"\$labels\.(\w+)", json.dumps(rule))
        assert set(shown) <= check_expression(rule["expr"]), rule["alert"]
        assert rule["alert"] != "ThetadSupervisorSilent" or "for" not in rule  # its watchdog would be sooner
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert all((DEPLOY / name).is_file() for name in scraped["rule_files"])
    (job,) = scraped["scrape_configs"]
    assert ask(url, job["metrics_path"]).status == 200


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    panels: list[dict[str, Any]] = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(expressions) > 20
    variables = dashboard["templating"]["list"]
    for text in [*expressions, *(each["definition"] for each in variables if each["type"] == "query")]:
        check_expression(text)
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(panels))) <= {each["name"] for each in variables}

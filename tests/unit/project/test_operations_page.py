"""Each claim of docs/operations.md names an existing test, and every alarm is listed."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.unit.project.test_faults_page import functions, is_soak

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_claim_has_a_test_that_ci_runs() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 25
    for file, function in named:
        assert function in functions(ROOT / file), (file, function)
        assert not is_soak(file, functions(ROOT / file)[function]), (file, function)


def test_every_row_on_safety_says_what_shows_it() -> None:
    safety = PAGE.split("## What to watch")[0]
    rows = [line for line in safety.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::\w+`|\]\(\w+\.md\S*\)", row.strip("| ").split(" | ")[-1]), row


def test_every_alarm_is_there() -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    alarms = {rule["alert"] for group in groups for rule in group["rules"]}
    table = PAGE.split("## Alarms")[1].split("\n## ")[0]
    assert set(re.findall(r"`(Thetad\w+)`", table)) == alarms

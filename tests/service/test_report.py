"""Reports and figures: complete, self-contained, and safe whatever things are called."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from drivers.robot_file import load_robot
from rt_core.batch.identify import Verdict
from rt_core.batch.rows import Rows
from rt_core.model.base import base_parameters
from rt_core.model.robot import Joint, RobotModel
from rt_core.validation import torque_metrics
from service.identification import ValidationVerdict
from service.plots import residual_figure, torque_figure
from service.report import VERDICT_TEXT, html_report, number
from tests.service.command_line import thetad

HOSTILE = '<script>alert("x")</script> & $\\frac{$ [/bold] \'"> é日本 {{ 7 * 7 }}'
VOID = {"meta", "img", "br", "hr", "link", "input"}
PNG = b"\x89PNG\r\n\x1a\n"


class Page(HTMLParser):
    """Collects text, tags and attributes, and checks that tags are closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.classes: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for key, value in attrs:
            assert not key.startswith("on")
            if key in ("src", "href", "srcset", "action", "data", "style", "background"):
                self.references.append(value or "")
            if key == "class":
                self.classes += (value or "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def self_contained(source: str) -> Page:
    """Assert that nothing is fetched from anywhere; returns the page."""
    page = Page(source)
    assert {"script", "link", "iframe", "object", "embed"}.isdisjoint(page.tags)
    for reference in page.references:
        kind, _, content = reference.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content, validate=True).startswith(PNG)
    assert "http:" not in source
    assert "https:" not in source
    assert "@import" not in source
    assert "url(" not in source
    assert source.lstrip().lower().startswith("<!doctype html>")
    return page


def model(names: tuple[str, ...]) -> RobotModel:
    return RobotModel(
        "r", tuple(Joint(name, "revolute", np.eye(3), np.zeros(3), np.array([0.0, 0.0, 1.0])) for name in names)
    )


def some_rows(n: int, count: int = 60) -> tuple[Rows, np.ndarray]:
    """Rows with gaps and a joint that is never used, and a prediction."""
    rng = np.random.default_rng(1)
    t = np.arange(count) * 0.02
    state = rng.normal(size=(count, n))
    use = rng.random((count, n)) > 0.2
    use[:, -1] = False
    rows = Rows(
        t, np.zeros((n, 1, count)), state, state, state, state, use, np.zeros(count, dtype=np.int64), 50.0, 10.0
    )
    return rows, state + 0.1


def report(names: tuple[str, ...], verdict: str = "ok", reasons: tuple[str, ...] = (), title: str = "t") -> str:
    rows, predicted = some_rows(len(names))
    metrics = torque_metrics(rows.tau, predicted, rows.use)
    base = {"unit": "kg", "expression": names[0], "status": "determined", "relative_std": 0.01}
    parameters = [
        base | {"name": names[0], "value": 1.25, "std": 0.0125},
        base | {"name": "b", "value": None, "std": None, "relative_std": None, "status": "undetermined"},
    ]
    facts = [("robot", names[0])]
    return html_report(title, model(names), rows, predicted, metrics, verdict, reasons, facts, parameters)


@pytest.mark.parametrize("verdict", sorted({*get_args(Verdict), *get_args(ValidationVerdict)}))
def test_says_the_verdict_and_why(verdict: str) -> None:
    page = self_contained(report(("a", "b"), verdict, ("joint a: too little", "b & c < d")))
    assert VERDICT_TEXT[verdict] in page.text
    assert "joint a: too little" in page.text
    assert "b & c < d" in page.text
    assert verdict in page.classes
    assert page.tags.count("img") == 2


def test_figures_in_tables() -> None:
    page = self_contained(report(("a", "b")))
    assert "1 determined, 1 undetermined." in page.text
    for text in ("1.25", "0.025", "1 %", "undetermined", "–"):
        assert text in page.text


def test_hostile_names_stay_text() -> None:
    source = report((HOSTILE, "b"), "ok", (HOSTILE,), HOSTILE)
    page = self_contained(source)
    assert page.text.count(HOSTILE) == 8  # title, heading, reason, fact, joint, parameter, expressions of two
    assert "49" not in source.split("</style>")[1].split("<img")[0]


def test_figures_of_hostile_names_and_empty_joints() -> None:
    names = ("$x_{$", "\\alpha $", "日本")
    rows, predicted = some_rows(3)
    for figure in (
        torque_figure(model(names), rows, predicted, HOSTILE),
        residual_figure(model(names), rows, predicted),
    ):
        assert figure.startswith(PNG)


def test_numbers() -> None:
    assert number(None) == number(float("nan")) == number(float("inf")) == "–"
    assert number(0.0) == "0"
    assert number(-12.3456) == "-12.35"
    assert number(1.23456e-7, 2) == "1.2e-07"


def test_report_of_an_identification_and_of_a_validation(
    space6_recording: Path, space6_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "<b>$1$ & co"
    folder.mkdir()
    recording = folder / "r$a$<i>.mcap"
    recording.write_bytes(space6_recording.read_bytes())
    done = thetad(
        "identify", recording, "--robot", "space6", "--span", "0:0.5", "--report", folder / "i.html", "--plot",
        folder / "new" / "i.png",
    )  # fmt: skip
    assert done.code == 0, done
    page = self_contained((folder / "i.html").read_text(encoding="utf-8"))
    assert "r$a$<i>.mcap" in page.text
    assert VERDICT_TEXT["ok"] in page.text
    base = base_parameters(load_robot("space6").model)
    for expression in base.expressions:
        assert expression in page.text
    assert "10 Hz" in page.text
    assert (folder / "new" / "i.png").read_bytes().startswith(PNG)

    done = thetad(
        "validate",
        space6_model,
        recording,
        "--span",
        "0.6:1",
        "--report",
        folder / "v.html",
        "--plot",
        folder / "v.png",
    )
    assert done.code == 0, done
    page = self_contained((folder / "v.html").read_text(encoding="utf-8"))
    assert "identification" not in page.text
    assert "Parameters" not in page.text
    assert (folder / "v.png").read_bytes().startswith(PNG)

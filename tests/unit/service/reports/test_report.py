"""Reports: complete, verdict first, self-contained, and safe whatever things are called."""

from __future__ import annotations

import base64
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import service.reports.identification
from drivers.files.robots.file import load_robot
from rt_core.identification.friction_curve import FrictionCurve, friction_curve
from rt_core.identification.identify import Identification, Verdict, identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.validation import torque_metrics
from service.models.document import parameter_table
from service.operations.identify import ValidationVerdict
from service.reports.identification import VERDICT_TEXT, certain, html_report, number
from tests.lab.arms.batch import arm, motion
from tests.lab.command_line import thetad
from tests.lab.recordings.some_rows import some_model, some_rows

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


def report(
    names: tuple[str, ...],
    verdict: str = "ok",
    reasons: tuple[str, ...] = (),
    title: str = "t",
    **more: Any,
) -> str:
    rows, predicted = some_rows(len(names))
    metrics = torque_metrics(rows.tau, predicted, rows.use)
    base = {"unit": "kg", "expression": names[0], "status": "determined", "relative_std": 0.01}
    parameters = [
        base | {"name": names[0], "value": 1.25, "std": 0.0125},
        base | {"name": "b", "value": None, "std": 7.77, "relative_std": 43.0, "status": "undetermined"},
    ]
    facts = [("robot", names[0])]
    return html_report(title, some_model(names), rows, predicted, metrics, verdict, reasons, facts, parameters, **more)


@pytest.fixture(scope="module")
def fit() -> Identification:
    """A fit of the small arm with noise."""
    model = arm()
    data = motion(model, 12.0, 250.0)
    tau = data.tau + 0.05 * np.random.default_rng(1).normal(size=data.tau.shape)
    settings = SignalSettings(10.0)
    return identify(model, base_parameters(model), prepare(data.t, data.q, tau, settings), settings)


def report_of(fit: Identification, verdict: str | None = None, **more: Any) -> str:
    table = parameter_table(fit.base, fit.theta, fit.std, fit.status, ("undetermined",))
    return html_report(
        "t", fit.model, fit.rows, fit.rows.predict(fit.theta), fit.metrics, verdict or fit.verdict, fit.reasons, (),
        table, identification=fit, **more,
    )  # fmt: skip


CONSTANTS = [
    {"name": "vb1", "value": 0.0512, "lower": 0.041, "upper": 0.077, "unit": "rad/s", "status": "determined"},
    {"name": "vb2", "value": None, "lower": 0.0123, "upper": None, "unit": "rad/s", "status": "undetermined"},
]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures instead of figures, for the tests of what the page says."""
    for name in ("torque", "friction", "residual", "spectrum", "histogram", "history"):
        monkeypatch.setattr(service.reports.identification, f"{name}_figure", lambda *_: PNG)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("verdict", sorted({*get_args(Verdict), *get_args(ValidationVerdict)}))
def test_verdict_and_reason(verdict: str) -> None:
    page = self_contained(report(("a", "b"), verdict, ("joint a: too little", "b & c < d")))
    assert VERDICT_TEXT[verdict] in page.text
    assert "joint a: too little" in page.text
    assert "b & c < d" in page.text
    assert verdict in page.classes
    assert page.tags.count("img") == page.tags.count("figcaption") == 4


@pytest.mark.usefixtures("undrawn")
def test_a_dropped_parameter_has_no_interval(fit: Identification) -> None:
    dropped = ("dropped", *fit.status[1:])
    table = parameter_table(fit.base, np.zeros_like(fit.theta), np.zeros_like(fit.std), dropped, ())
    rows, predicted = some_rows(3)
    metrics = torque_metrics(rows.tau, predicted, rows.use)
    source = html_report("t", fit.model, rows, predicted, metrics, "ok", (), (), table)
    row = source[source.index('<tr class="dropped">') :].partition("</tr>")[0]
    assert "<td>0</td><td>–</td><td>–</td>" in row
    assert "<em>Dropped</em>" in source


@pytest.mark.usefixtures("undrawn")
def test_parameter_table() -> None:
    page = self_contained(report(("a", "b")))
    assert "1 determined, 1 undetermined." in page.text
    for text in ("1.25", "1.2255", "1.2745", "1 %", "> 100 %", "undetermined", "–"):
        assert text in page.text
    assert "7.77" not in page.text


def test_verdict_then_joints_then_parameters_then_evidence(fit: Identification) -> None:
    source = report_of(fit, constants=CONSTANTS, history=[np.array([3.0, 2.0, 1.0])])
    page = self_contained(source)
    places = [source.index(text) for text in (
        "Verdict:", "Joint by joint", "<h2>Parameters", "Velocity constants", "What was done", "Torque, joint by joint",
        "<img", "<h2>Friction", "<h2>Residual", "<h2>Search",
    )]  # fmt: skip
    assert places == sorted(places)
    assert page.tags.count("img") == 6
    joints = source[places[1] : places[2]]
    for joint in fit.model.joints:
        assert f">{joint.name}<" in joints
    assert joints.count("well determined") == 3
    for expression in fit.base.expressions:
        assert f"<code>{expression}</code>" in source


@pytest.mark.usefixtures("undrawn")
def test_velocity_constants_have_a_table_of_their_own(fit: Identification) -> None:
    source = report_of(fit, constants=CONSTANTS)
    table = source[source.index("<h2>Velocity constants") : source.index("What was done")]
    for text in ("vb1", "0.0512", "0.041", "0.077", "vb2", "0.0123", "–"):
        assert f">{text}<" in table
    assert 'class="undetermined"' in table


@pytest.mark.usefixtures("undrawn")
def test_a_rejected_fit_shows_no_values(fit: Identification) -> None:
    rejected = replace(fit, verdict="not_explained")
    source = report_of(rejected, constants=CONSTANTS)
    page = self_contained(source)
    assert page.tags.count("img") == 4
    for absent in ("<h2>Parameters", "<h2>Friction", "Velocity constants", "0.0512", "well determined"):
        assert absent not in source
    assert "rejected" in page.text


@pytest.mark.usefixtures("undrawn")
def test_joints_without_a_friction_curve_are_named(fit: Identification, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_one(*arguments: Any) -> FrictionCurve | None:
        return None if arguments[6] == 1 else friction_curve(*arguments)

    monkeypatch.setattr(service.reports.identification, "friction_curve", all_but_one)
    assert "Without a curve, for lack of friction or of data: shoulder." in self_contained(report_of(fit)).text
    monkeypatch.setattr(service.reports.identification, "friction_curve", lambda *_: None)
    assert "<h2>Friction" not in report_of(fit)


def test_report_of_nine_joints_is_small() -> None:
    model = load_robot("arm9").model
    rows, predicted = some_rows(9, 6000)
    metrics = torque_metrics(rows.tau, predicted, rows.use)
    assert len(html_report("t", model, rows, predicted, metrics, "ok", (), ())) < 2_000_000


@pytest.mark.usefixtures("undrawn")
def test_hostile_names_stay_text() -> None:
    source = report((HOSTILE, "b"), "ok", (HOSTILE,), HOSTILE)
    page = self_contained(source)
    assert page.text.count(HOSTILE) == 8  # title, heading, reason, fact, joint, parameter, expressions of two
    assert "49" not in source.split("</style>")[1].split("<img")[0]


def test_numbers() -> None:
    assert number(None) == number(float("nan")) == number(float("inf")) == "–"
    assert number(0.0) == "0"
    assert number(-12.3456) == "-12.35"
    assert number(1.23456e-7, 2) == "1.2e-07"
    assert certain(None) == certain(float("inf")) == "–"
    assert certain(0.0123) == "1.2 %"
    assert certain(1.5) == "> 100 %"


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
    assert page.text.count("well determined") == 6
    assert page.tags.count("img") == 5
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
    assert page.tags.count("img") == 4
    assert (folder / "v.png").read_bytes().startswith(PNG)

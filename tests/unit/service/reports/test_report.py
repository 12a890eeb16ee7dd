"""Reports: complete, verdict first, self-contained, and safe whatever things are called."""

import base64
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import service.reports.figures
from rt_core.identification.identify import Identification, Verdict, identify
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.inertia import inertial_vector
from rt_core.validation import torque_metrics
from service.models.document import parameter_table
from service.operations.identify import Validation, ValidationVerdict
from service.operations.payload import QUANTITIES, PayloadResult, PayloadVerdict, Quantity
from service.reports.cells import VERDICT_TEXT
from service.reports.identification import html_report
from service.reports.payload import VERDICT_TEXT as PAYLOAD_TEXT
from service.reports.payload import payload_html
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
    assert [words for words in ("http:", "https:", "@import", "url(") if words in source] == []
    assert source.lstrip().lower().startswith("<!doctype html>")
    return page


def report(names: tuple[str, ...], verdict: str = "ok", reasons: tuple[str, ...] = (), title: str = "t") -> str:
    rows, predicted = some_rows(len(names))
    metrics, settings = torque_metrics(rows.tau, predicted, rows.use), SignalSettings(10.0)
    result = Validation(rows, predicted, metrics, verdict, reasons, np.zeros(len(names)), settings)
    base = {"unit": "kg", "expression": names[0], "status": "determined", "relative_std": 0.01}
    parameters = [
        base | {"name": names[0], "value": 1.25, "std": 0.0125},
        base | {"name": "b", "value": None, "std": 7.77, "relative_std": 43.0, "status": "undetermined"},
    ]
    return html_report(title, some_model(names), result, [("robot", names[0])], {"parameters": parameters})


@pytest.fixture(scope="module")
def fit() -> Identification:
    """A fit of the small arm with noise."""
    model = arm()
    data = motion(model, 12.0, 250.0)
    tau = data.tau + 0.05 * np.random.default_rng(1).normal(size=data.tau.shape)
    settings = SignalSettings(10.0)
    return identify(model, base_parameters(model), prepare(data.t, data.q, tau, settings), settings)


def report_of(fit: Identification, *history: np.ndarray) -> str:
    table = parameter_table(fit.base, fit.theta, fit.std, fit.status, ("undetermined",))
    return html_report("t", fit.model, fit, (), {"parameters": table, "constants": CONSTANTS}, history)


CONSTANTS = [
    {"name": "vb1", "value": 0.0512, "lower": 0.041, "upper": 0.077, "unit": "rad/s", "status": "determined"},
    {"name": "vb2", "value": None, "lower": 0.0123, "upper": None, "unit": "rad/s", "status": "undetermined"},
]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures instead of figures, for the tests of what the page says."""
    for name in ("torque", "friction", "residual", "spectrum", "histogram", "history"):
        monkeypatch.setattr(service.reports.figures, f"{name}_figure", lambda *_: PNG)


@pytest.mark.usefixtures("undrawn")
def test_verdict_reason_and_parameters() -> None:
    for verdict in {*get_args(Verdict), *get_args(ValidationVerdict)}:
        page = self_contained(report(("a", "b"), verdict, ("joint a: too little", "b & c < d")))
        assert VERDICT_TEXT[verdict] in page.text
        assert "b & c < d" in page.text
        assert verdict in page.classes
        assert page.tags.count("img") == page.tags.count("figcaption") == 4
    text = self_contained(report(("a", "b"))).text
    for words in ("1 determined, 1 undetermined.", "1.25", "1.2255", "1.2745", "1 %", "> 100 %", "–"):
        assert words in text
    assert "7.77" not in text


def test_verdict_then_joints_then_parameters_then_evidence(fit: Identification) -> None:
    source = report_of(fit, np.array([3.0, 2.0, 1.0]))
    page = self_contained(source)
    places = [source.index(text) for text in (
        "Verdict:", "Joint by joint", "<h2>Parameters", "<h2>Velocity constants", "What was done",
        "Torque, joint by joint", "<img", "<h2>Friction", "<h2>Residual", "<h2>Search",
    )]  # fmt: skip
    assert places == sorted(places)
    assert page.tags.count("img") == 6
    assert source[places[1] : places[2]].count("well determined") == 3
    constants = source[places[3] : places[4]]
    for text in ("vb1", "0.0512", "0.041", "0.077", "vb2", "0.0123", "–"):
        assert f">{text}<" in constants
    for expression in fit.base.expressions:
        assert f"<code>{expression}</code>" in source


@pytest.mark.usefixtures("undrawn")
def test_a_rejected_fit_shows_no_values(fit: Identification) -> None:
    source = report_of(replace(fit, verdict="not_explained"))
    page = self_contained(source)
    assert page.tags.count("img") == 4
    for absent in ("<h2>Parameters", "<h2>Friction", "Velocity constants", "0.0512", "well determined"):
        assert absent not in source
    assert "rejected" in page.text


@pytest.mark.usefixtures("undrawn")
def test_hostile_names_stay_text() -> None:
    source = report((HOSTILE, "b"), "ok", (HOSTILE,), HOSTILE)
    page = self_contained(source)
    assert page.text.count(HOSTILE) == 10  # title, heading, reason, fact, worst joint, parameters, expressions ...
    assert "49" not in source.split("</style>")[1].split("<img")[0]


@pytest.mark.slow
def test_report_of_an_identification_and_of_a_validation(
    space6_recording: Path, space6_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "<b>$1$ & co"
    folder.mkdir()
    recording = folder / "r$a$<i>.mcap"
    recording.write_bytes(space6_recording.read_bytes())
    thetad("identify", recording, "--robot", "space6", "--span", "0:0.5", "--report", folder / "i.html").ok()
    page = self_contained((folder / "i.html").read_text(encoding="utf-8"))
    for text in ("r$a$<i>.mcap", VERDICT_TEXT["ok"], "10 Hz", "worst joint"):
        assert text in page.text
    assert (page.text.count("well determined"), page.tags.count("img")) == (6, 5)

    files = ("--report", folder / "v.html", "--plot", folder / "new" / "v.png")
    thetad("validate", space6_model, recording, "--span", "0.6:1", *files).ok()
    page = self_contained((folder / "v.html").read_text(encoding="utf-8"))
    assert "Parameters" not in page.text
    assert page.tags.count("img") == 4
    assert (folder / "new" / "v.png").read_bytes().startswith(PNG)


# Of a payload ----------------------------------------------------------------------------------------

BODY = inertial_vector(2.5, np.array([0.01, -0.02, 0.08]), np.diag([0.02, 0.015, 0.0123]))


def payload(**changes: object) -> PayloadResult:
    figures = tuple(
        Quantity(name, unit, 1.25 + k, 0.01, 1.2304 + k, 1.2696 + k, "determined")
        for k, (name, unit) in enumerate(QUANTITIES)
    )
    return replace(PayloadResult("determined", (), True, figures, BODY, 1.02), **changes)  # type: ignore[arg-type]


def payload_page(found: PayloadResult) -> str:
    return payload_html("t", found, some_model(("a", "b")), [("with payload", "x.mcap")])


def test_figures_and_body_of_a_payload() -> None:
    shown = self_contained(payload_page(payload()))
    for name, unit in QUANTITIES:
        assert name in shown.text
        assert unit in shown.text
    for text in ("1.25", "1.2304", "1.2696", "10.25", "2.5 kg", "0.01 -0.02 0.08 m", "0.0123", "x.mcap"):
        assert text in shown.text
    assert "img" not in shown.tags
    assert "determined" in shown.classes


def test_every_verdict_on_a_payload_has_a_text() -> None:
    for verdict in get_args(PayloadVerdict):
        shown = self_contained(payload_page(payload(verdict=verdict, reasons=("because of this",))))
        assert PAYLOAD_TEXT[verdict] in shown.text
        assert "because of this" in shown.text
        assert verdict in shown.classes


def test_what_is_open_of_a_payload_has_no_value() -> None:
    figures = list(payload().quantities)
    figures[4] = Quantity("inertia_xx", "kg*m^2", None, 7.77, None, None, "undetermined", "known to ± 15 kg*m^2 only")
    shown = self_contained(payload_page(payload(verdict="partly_determined", quantities=tuple(figures), body=None)))
    assert "known to ± 15 kg*m^2 only" in shown.text
    assert "7.77" not in shown.text
    assert "Nearest real body" not in shown.text
    shown = self_contained(payload_page(payload(verdict="no_payload", present=False, body=None)))
    assert "centre_x" not in shown.text
    assert "1.25" not in shown.text


@pytest.mark.slow
def test_report_of_a_payload(arm7_model: Path, arm7_loaded: Path, tmp_path: Path) -> None:
    out = tmp_path / "payload.html"
    done = thetad("payload", arm7_model, arm7_loaded, "--report", out)
    assert (done.code, done.err) == (0, "")
    shown = self_contained(out.read_text(encoding="utf-8"))
    (mass,) = (line.split()[1] for line in done.out.splitlines() if line.startswith("mass "))
    for text in (mass, "arm7", str(arm7_loaded), "without payload", "times what noise explains", "Nearest real body"):
        assert text in shown.text
    assert shown.tags.count("img") == 1
    refit = thetad("payload", arm7_model, arm7_loaded, "--refit-effects", "--report", out, "--json")
    assert refit.json["verdict"] == "determined"
    assert "a separate fit" in self_contained(out.read_text(encoding="utf-8")).text
    thetad("payload", arm7_model, arm7_loaded, "--report", tmp_path).refused(tmp_path.name)

"""The page of a payload: verdict, figures and torque, and nothing that the data do not determine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.inertia import inertial_vector
from rt_core.model.robot import RobotModel
from service.operations.payload import QUANTITIES, PayloadResult, PayloadVerdict, Quantity
from service.reports.payload import VERDICT_TEXT, payload_html
from tests.lab.command_line import simulate, thetad
from tests.lab.recordings.some_rows import some_model
from tests.unit.service.cli.test_payload_command import loaded
from tests.unit.service.reports.test_report import HOSTILE, self_contained

BODY = inertial_vector(2.5, np.array([0.01, -0.02, 0.08]), np.diag([0.02, 0.015, 0.0123]))


def quantity(name: str, unit: str, value: float) -> Quantity:
    return Quantity(name, unit, value, 0.01, value - 0.0196, value + 0.0196, "determined")


def result(**changes: object) -> PayloadResult:
    figures = tuple(quantity(name, unit, 1.25 + k) for k, (name, unit) in enumerate(QUANTITIES))
    return replace(PayloadResult("determined", (), True, figures, BODY, 1.02), **changes)  # type: ignore[arg-type]


def page(found: PayloadResult, title: str = "t", model: RobotModel | None = None) -> str:
    return payload_html(title, found, some_model(("a", "b")) if model is None else model, [("with payload", "x.mcap")])


def test_figures_and_body() -> None:
    shown = self_contained(page(result()))
    for name, unit in QUANTITIES:
        assert name in shown.text
        assert unit in shown.text
    for text in ("1.25", "1.2304", "1.2696", "10.25", "2.5 kg", "0.01 -0.02 0.08 m", "0.0123", "x.mcap"):
        assert text in shown.text
    assert "img" not in shown.tags
    assert "determined" in shown.classes


@pytest.mark.parametrize("verdict", get_args(PayloadVerdict))
def test_every_verdict_has_a_text(verdict: PayloadVerdict) -> None:
    shown = self_contained(page(result(verdict=verdict, reasons=("because of this",))))
    assert VERDICT_TEXT[verdict] in shown.text
    assert "because of this" in shown.text
    assert verdict in shown.classes


def test_what_is_open_has_no_value() -> None:
    figures = list(result().quantities)
    figures[4] = Quantity("inertia_xx", "kg*m^2", None, 7.77, None, None, "undetermined", "known to ± 15 kg*m^2 only")
    shown = self_contained(page(result(verdict="partly_determined", quantities=tuple(figures), body=None)))
    assert "known to ± 15 kg*m^2 only" in shown.text
    assert "7.77" not in shown.text
    assert "Nearest real body" not in shown.text


def test_without_payload_there_is_no_table() -> None:
    shown = self_contained(page(result(verdict="no_payload", present=False, body=None)))
    assert "centre_x" not in shown.text
    assert "1.25" not in shown.text


def test_names_are_text() -> None:
    source = payload_html(HOSTILE, result(reasons=(HOSTILE,)), some_model(("a",)), [(HOSTILE, HOSTILE)])
    shown = self_contained(source)
    assert shown.text.count(HOSTILE) == 5


def test_from_the_command_line(arm7_model: Path, arm7_recording: Path, work: Path, tmp_path: Path) -> None:
    carried = simulate(work / "arm7_report.mcap", loaded(load_robot("arm7").model), seed=15, seconds=12.0)
    out = tmp_path / "payload.html"
    done = thetad("payload", arm7_model, carried, "--report", out)
    assert (done.code, done.err) == (0, "")
    shown = self_contained(out.read_text(encoding="utf-8"))
    assert "Verdict: the payload is determined" in shown.text
    (mass,) = (line.split()[1] for line in done.out.splitlines() if line.startswith("mass "))
    for text in (mass, "arm7", str(carried), "without payload", "times what noise explains", "Nearest real body"):
        assert text in shown.text
    assert shown.tags.count("img") == 1
    assert "with the payload" in shown.text

    refit = thetad("payload", arm7_model, carried, "--refit-effects", "--report", out, "--json")
    assert refit.json["verdict"] == "determined"
    assert "a fit of its own" in self_contained(out.read_text(encoding="utf-8")).text

    none = thetad("payload", arm7_model, arm7_recording, "--span", "0.62:1", "--report", out)
    assert none.code == 1
    shown = self_contained(out.read_text(encoding="utf-8"))
    assert "Verdict: no payload is seen" in shown.text
    assert "centre_x" not in shown.text

    thetad("payload", arm7_model, carried, "--report", tmp_path).refused(tmp_path.name)

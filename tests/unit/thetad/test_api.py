"""The Python API: arrays in and out, the same results as the commands, and the examples of the documents."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

import thetad
from service.operations.errors import OperationError
from tests.lab.command_line import ROOT
from tests.lab.console import differs

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
TEXT = (ROOT / "README.md").read_text(encoding="utf-8") + PAGE
EXAMPLES = re.findall(r"```python\n(import thetad\n.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def found(space6_recording: Path) -> thetad.Identification:
    return thetad.identify(space6_recording, "space6", span="0:0.6")


@pytest.mark.parametrize("k", [0, 1])
def test_examples_print_what_is_shown(k: int) -> None:
    code, shown = EXAMPLES[k]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    assert differs(shown.splitlines(), out.getvalue().splitlines()) == ""
    assert len(code.split("\n\n", 1)[1].splitlines()) <= 8


def test_the_page_has_all_names_and_signatures() -> None:
    tree, page = ast.parse((ROOT / "thetad" / "_api.py").read_text()), re.sub(r"\s", "", PAGE.replace('"', "'"))
    for name in thetad.__all__:
        assert f"`{name}`" in page or f"def{name}(" in page
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body = []
            assert re.sub(r"\s", "", ast.unparse(node)).removesuffix(":") in page, node.name


def test_a_table_becomes_the_recording_it_was(space6_recording: Path) -> None:
    recording = thetad.read_recording(space6_recording)
    channels = {"t": recording.t, **recording.channels}
    columns = {f"{name}{k + 1}": x for name, y in recording.channels.items() for k, x in enumerate(y.T)}
    for table in (channels, {"t": recording.t, "note": recording.t, **columns}):
        other = thetad.import_table(table, robot="space6")
        assert other.meta.joint_names == recording.meta.joint_names
        for name, values in recording.channels.items():
            np.testing.assert_array_equal(other.channels[name], values)
    with pytest.raises(ValueError, match="mapping is missing"):
        thetad.import_table(channels)
    with pytest.raises(ValueError, match="unit"):
        thetad.import_table(channels | {"q": 57.3 * channels["q"]}, robot="space6")


def test_a_model_predicts_is_saved_and_exported(found: thetad.Identification, tmp_path: Path) -> None:
    model, rows, module = found.model, found.found.result.rows, {}
    tau = model.torque(rows.q, rows.dq, rows.ddq)
    np.testing.assert_allclose(model.regressor(rows.q, rows.dq, rows.ddq) @ model.theta, tau)
    assert np.linalg.norm((tau - rows.tau)[rows.use]) < 0.05 * np.linalg.norm(rows.tau[rows.use])
    exec(model.to_python(), module)
    np.testing.assert_allclose(module["torque"](rows.q[3], rows.dq[3], rows.ddq[3]), tau[3], atol=1e-9)
    np.testing.assert_allclose(model.torque(rows.q[3], rows.dq[3], rows.ddq[3]), tau[3])
    model.save(tmp_path / "model.yaml")
    again = thetad.Model(tmp_path / "model.yaml")
    np.testing.assert_array_equal(again.covariance, model.covariance)
    assert [row["name"] for row in again.parameters] == [*model.names]
    assert model.to_urdf().startswith("<")


def test_results_are_those_of_commands(
    space6_recording: Path, space6_model: Path, found: thetad.Identification
) -> None:
    np.testing.assert_array_equal(found.model.theta, thetad.Model(space6_model).theta)
    checked = thetad.validate(found.model, space6_recording, span="0.6:1")
    assert (checked.verdict, checked.summary["relative_error"]) == ("ok", checked.relative_error)
    assert found._repr_html_().startswith("<iframe")
    with pytest.raises(OperationError, match="no_such: is no parameter"):
        thetad.identify(space6_recording, "space6", no_such=1)


def test_a_payload_is_found(arm7_model: Path, arm7_loaded: Path) -> None:
    payload = thetad.payload(arm7_model, arm7_loaded)
    assert payload.quantities[0]["lower"] < 2.5 < payload.quantities[0]["upper"]
    assert payload.plot().startswith(b"\x89PNG\r\n")


def test_a_designed_trajectory_is_followed() -> None:
    design = thetad.excite("space6", iterations=2)
    recording = thetad.simulate("space6", 5.0, trajectory=design, rate_hz=200.0)
    wanted = [np.interp(recording.t, design.trajectory["t"], column) for column in design.trajectory["q"].T]
    assert np.abs(recording.channels["q"].T - wanted).max() < 0.02

"""The Python API: arrays in and out, and the examples of the documents."""

import ast
import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zmq

import thetad
from rt_core.model.temperature import TemperatureRange
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
    for name in dir(thetad):
        assert f"`{name}`" in page or f"def{name}(" in page
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            node.body = []
            assert re.sub(r"\s", "", ast.unparse(node)).removesuffix(":") in page, node.name


def test_a_table_becomes_the_recording_it_was(space6_recording: Path) -> None:
    recording = thetad.read_recording(space6_recording)
    channels = {"t": recording.t, **recording.channels}
    columns = {f"{name}{k + 1}": x for name, y in recording.channels.items() for k, x in enumerate(y.T)}
    for table in (channels, {"t": recording.t, "file": ["text"], **columns}):
        other = thetad.import_table(table, robot="space6")
        assert other.meta.joint_names == recording.meta.joint_names
        np.testing.assert_equal(other.channels, recording.channels)
    with pytest.raises(ValueError, match="mapping is missing"):
        thetad.import_table("log.csv", robot="space6")
    with pytest.raises(ValueError, match="columns of tau are tau1 to tau6: there is no tau3, tau7 is none of them"):
        thetad.import_table({("tau7" if name == "tau3" else name): x for name, x in columns.items()}, robot="space6")
    with pytest.warns(UserWarning, match="1 rows repeat the row before"):
        thetad.import_table({name: np.insert(x, 0, x[0], axis=0) for name, x in channels.items()}, robot="space6")
    with pytest.raises(ValueError, match="unit"):
        thetad.import_table(channels | {"q": 57.3 * channels["q"]}, robot="space6")


def test_what_is_not_determined_has_no_number(space6_recording: Path) -> None:
    model = thetad.identify(space6_recording, "space6", span="0s:3s").model
    model.parameters[0].clear()  # that of the model stays
    hidden = np.array([row["value"] is None for row in model.parameters])
    assert 0 < hidden.sum() < hidden.size
    np.testing.assert_array_equal(np.isnan([model.theta, np.diag(model.covariance)]), [hidden, hidden])
    with pytest.raises(ValueError, match="read-only"):
        model.theta *= 2.0
    hot = thetad.Model(replace(model.file, temperatures=TemperatureRange(np.full(6, 20.0), np.full(6, 30.0))))
    with pytest.warns(UserWarning, match="joint . is (faster than 1.25 x|outside 20.0 to 30.0 degC)") as caught:
        assert np.isfinite(hot.torque(np.zeros(6), np.full(6, 9.0), np.zeros(6), np.full(6, 31.5))).all()
    assert len(caught) == 12


def test_a_calibration_is_checked_on_a_second_table() -> None:
    names = (*(f"q{k + 1}" for k in range(6)), *"xyz")
    table = dict(zip(names, np.random.default_rng(0).uniform(-1.0, 1.0, (9, 60)), strict=True))
    found = thetad.calibrate(table, "space6", check={name: x[:40] for name, x in table.items()})
    assert found.summary["residual"]["check"]["poses"] == 40


def test_one_topic_is_one_subscription() -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        with thetad.connect("arm/estimate", f"tcp://127.0.0.1:{port}"):
            assert socket.recv() == b"\x01arm/estimate"


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
    assert model.to_mjcf().startswith("<mujoco")
    assert "int thetad_torque(" in model.to_c()
    assert 'name="flange"' in model.to_urdf("configs/robots/space6.urdf")


def test_a_page_is_shown_and_nonsense_is_refused(
    space6_recording: Path, space6_model: Path, found: thetad.Identification
) -> None:
    assert thetad.run("validate", model=space6_model, recording=space6_recording, span="0.6:1").verdict == "ok"
    assert found._repr_html_().startswith("<iframe")
    with pytest.raises(OperationError, match="cutoff_hz: should be a finite number, got nan; no_such: is no"):
        thetad.identify(space6_recording, "space6", no_such=1, cutoff_hz=np.nan)


def test_a_payload_is_found(arm7_model: Path, arm7_loaded: Path) -> None:
    payload = thetad.payload(arm7_model, arm7_loaded)
    assert payload.quantities[0]["lower"] < 2.5 < payload.quantities[0]["upper"]
    assert payload.plot().startswith(b"\x89PNG\r\n")


def test_a_designed_trajectory_is_followed() -> None:
    design = thetad.excite("space6", iterations=2)
    recording = thetad.simulate("space6", 5.0, trajectory=design, rate_hz=200.0)
    wanted = [np.interp(recording.t, design.trajectory["t"], column) for column in design.trajectory["q"].T]
    assert np.abs(recording.channels["q"].T - wanted).max() < 0.02

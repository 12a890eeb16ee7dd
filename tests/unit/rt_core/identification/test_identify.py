"""Identification of simulated arms, the verdicts on recordings that do not fit, and the published sets of real data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import DataError, Signals, SignalSettings, prepare
from rt_core.identification.rows import build_rows
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.validation import Metrics, torque_metrics
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.recordings.real_sets import load_set

SIMULATED = ("space6", "arm7", "arm9")


def simulate(model: RobotModel, seed: int = 1, seconds: float = 20.0, **motion: object) -> SimulatedData:
    settings = MotionSettings(seed=seed, **motion)  # type: ignore[arg-type]
    return SimulatedArm(model, SimSettings(rate_hz=250.0), settings, seed=seed).simulate(seconds)


@pytest.fixture(scope="module")
def recordings() -> dict[str, SimulatedData]:
    return {name: simulate(load_robot(name).model) for name in SIMULATED}


def fit(model: RobotModel, data: SimulatedData, method: str = "wls", **channels: np.ndarray) -> Identification:
    """Identify `model` from `data`, of which `channels` may replace q or tau."""
    settings = SignalSettings(10.0, min_velocity=model.standstill_velocity)
    values = data.channels | channels
    signals = prepare(data.t, values["q"], values["tau"], settings)
    return identify(model, base_parameters(model), signals, settings, method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("method", ["ols", "wls", "iwls"])
def test_a_simulated_arm_is_found_again(recordings: dict[str, SimulatedData], name: str, method: str) -> None:
    model, data = load_robot(name).model, recordings[name]
    found = fit(model, data, method)
    true = found.base.theta(standard_parameters(model, found.base.standard))
    z = (found.theta - true) / found.std
    assert np.mean(np.abs(z) < 1.96) >= 0.85
    assert found.metrics.relative_error < 0.02
    assert (found.metrics.R > 0.99).all()
    assert not found.gravity.suspicious
    assert found.verdict != "not_explained"
    assert found.status.count("undetermined") == 0


def turned(model: RobotModel, direction: tuple[float, float, float]) -> RobotModel:
    return replace(model, gravity=9.81 * np.array(direction) / np.linalg.norm(direction))


@pytest.mark.parametrize("name", ["arm7", "space6"])
@pytest.mark.parametrize("direction", [(0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, -1.0, -1.0)])
def test_wrong_mounting_direction_is_flagged_with_evidence(
    recordings: dict[str, SimulatedData], name: str, direction: tuple[float, float, float]
) -> None:
    model, data = load_robot(name).model, recordings[name]
    true = model.gravity
    found = fit(turned(model, direction), data)
    assert found.gravity.suspicious
    assert found.verdict == "not_explained"
    np.testing.assert_allclose(found.gravity.best, true, atol=0.1)
    assert found.gravity.ratio < 0.93
    reason = next(r for r in found.reasons if r.startswith("gravity along"))
    assert "mounting direction" in reason
    assert "%" in reason


def test_an_arm_on_the_ceiling_taken_for_one_on_the_floor() -> None:
    floor = load_robot("arm7").model
    ceiling = replace(floor, gravity=-floor.gravity)
    data = simulate(ceiling, 3)
    good = fit(ceiling, data)
    wrong = fit(floor, data)
    assert good.verdict != "not_explained"
    assert wrong.verdict == "not_explained"
    np.testing.assert_allclose(wrong.gravity.best, ceiling.gravity, atol=0.1)


@pytest.mark.parametrize("channel", ["constant", "noise", "zero"])
def test_a_torque_channel_without_signal(recordings: dict[str, SimulatedData], channel: str) -> None:
    model, data = load_robot("arm7").model, recordings["arm7"]
    tau = data.channels["tau"].copy()
    rng = np.random.default_rng(0)
    tau[:, 3] = {"constant": 4.2, "zero": 0.0, "noise": rng.standard_normal(data.t.size)}[channel]
    found = fit(model, data, tau=tau)
    assert found.verdict == "not_explained"
    reason = next(r for r in found.reasons if r.startswith("joint joint_4"))
    assert "no signal" in reason


def test_a_joint_that_never_moves() -> None:
    model = load_robot("arm7").model
    found = fit(model, simulate(model, 2, held=("joint_5",)))
    status = dict(zip(found.base.names, found.status, strict=True))
    assert {status[name] for name in ("fv5", "fc5", "off5")} == {"undetermined"}
    std = dict(zip(found.base.names, found.std, strict=True))
    assert std["fc5"] == np.inf
    assert any("joint_5" in reason for reason in found.reasons)
    assert {status[name] for name in ("fc1", "fc2", "fc3", "fc4", "fc6", "fc7")} == {"determined"}


@pytest.mark.parametrize("factor", [180.0 / np.pi, np.pi / 180.0])
def test_degrees_for_radians_do_not_pass(recordings: dict[str, SimulatedData], factor: float) -> None:
    model, data = load_robot("arm7").model, recordings["arm7"]
    try:
        found = fit(model, data, q=factor * data.channels["q"])
    except DataError as error:
        assert "joint" in str(error) or "rows" in str(error)  # noqa: PT017
    else:
        assert found.verdict != "ok"
        assert found.reasons


def test_swapped_torque_columns_do_not_pass(recordings: dict[str, SimulatedData]) -> None:
    model, data = load_robot("arm7").model, recordings["arm7"]
    swapped = data.channels["tau"][:, [0, 2, 1, 3, 4, 5, 6]]
    assert fit(model, data, tau=swapped).verdict == "not_explained"


def test_microgravity_is_fitted_and_believed() -> None:
    model = replace(load_robot("arm7").model, gravity=np.zeros(3))
    found = fit(model, simulate(model, 4))
    assert not found.gravity.suspicious
    assert found.verdict != "not_explained"


def test_too_little_data_is_refused(recordings: dict[str, SimulatedData]) -> None:
    model, data = load_robot("arm7").model, recordings["arm7"]
    settings = SignalSettings(10.0)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], settings)
    base = base_parameters(model)
    with pytest.raises(DataError, match="no rows between 100 s and 200 s"):
        identify(model, base, signals, settings, start_s=100.0, stop_s=200.0)
    with pytest.raises(DataError, match="parameters: record longer"):
        identify(model, base, signals, settings, start_s=2.0, stop_s=2.1)


def test_metrics_by_hand() -> None:
    measured = np.array([[1.0, 2.0], [2.0, 2.0], [4.0, 2.0], [9.0, 2.0]])
    predicted = np.array([[1.5, 2.0], [2.0, 1.0], [3.0, 3.0], [-5.0, 0.0]])
    use = np.array([[True, True], [True, True], [True, True], [False, True]])
    found = torque_metrics(measured, predicted, use)
    assert found.rmse[0] == pytest.approx(np.sqrt((0.25 + 0.0 + 1.0) / 3))
    assert found.mae[1] == pytest.approx(1.0)
    assert found.maximum.tolist() == [1.0, 2.0]
    assert found.R[0] == pytest.approx(np.corrcoef([1, 2, 4], [1.5, 2, 3])[0, 1])
    assert np.isnan(found.R[1])  # a constant correlates with nothing
    assert found.relative_error == pytest.approx(np.sqrt((1.25 + 6.0) / (21.0 + 16.0)))
    assert found.count.tolist() == [3, 4]
    assert found.as_dict()["R"][1] is None  # type: ignore[index]


# -- real recordings: the figures of their READMEs, or better ------------------------------------


def validated(found: Identification, signals: Signals, settings: SignalSettings, start: float, stop: float) -> Metrics:
    rows = build_rows(found.model, found.base, signals, settings, slow=False).select(start, stop)
    return torque_metrics(rows.tau, rows.predict(found.theta), rows.use)


def test_emps(data_dir: Path) -> None:
    real = load_set(data_dir, "emps/emps.npz", "emps")
    found = identify(real.robot.model, base_parameters(real.robot.model), real.signals, real.settings)
    values = dict(zip(found.base.names, found.theta, strict=True))
    for name, published in (("m1", 95.1089), ("fv1", 203.5034), ("fc1", 20.3935), ("off1", -3.1648)):
        assert values[name] == pytest.approx(published, rel=0.01), name
    assert found.metrics.relative_error <= 0.041
    assert not found.gravity.suspicious


def test_staubli_tx40(data_dir: Path) -> None:
    real = load_set(data_dir, "staubli_tx40/tx40.npz", "staubli_tx40")
    robot, settings, signals = real.robot, real.settings, real.signals
    base = base_parameters(robot.model)
    found = identify(robot.model, base, signals, settings, start_s=0.1, stop_s=7.5)
    assert found.metrics.relative_error <= 0.047
    assert not found.gravity.suspicious
    first = identify(robot.model, base, signals, settings, start_s=0.1, stop_s=4.91)
    assert validated(first, signals, settings, 4.91, 7.5).relative_error <= 0.072


def test_franka_panda(data_dir: Path) -> None:
    real = load_set(data_dir, "franka_panda/panda_exciting.npz", "franka_panda")
    robot, settings, signals = real.robot, real.settings, real.signals
    base = base_parameters(robot.model)
    split = signals.t_first + 0.6 * (signals.t_last - signals.t_first)
    found = identify(robot.model, base, signals, settings, stop_s=split)
    assert validated(found, signals, settings, split, np.inf).relative_error <= 0.012
    assert not found.gravity.suspicious
    assert found.verdict != "not_explained"


def test_kuka_lwr4(data_dir: Path) -> None:
    real = load_set(data_dir, "kuka_lwr4/measurements_1.npz", "kuka_lwr4")
    robot, settings, signals = real.robot, real.settings, real.signals
    found = identify(robot.model, base_parameters(robot.model), signals, settings)
    second = load_set(data_dir, "kuka_lwr4/measurements_2.npz", "kuka_lwr4").signals
    assert validated(found, second, settings, -np.inf, np.inf).relative_error <= 0.020
    assert not found.gravity.suspicious


@pytest.mark.parametrize(
    ("file", "mapping"),
    [("franka_panda/panda_exciting.npz", "franka_panda"), ("kuka_lwr4/measurements_1.npz", "kuka_lwr4")],
)
def test_real_arms_on_the_ceiling_are_flagged(data_dir: Path, file: str, mapping: str) -> None:
    real = load_set(data_dir, file, mapping)
    robot, settings, signals = real.robot, real.settings, real.signals
    model = replace(robot.model, gravity=-robot.model.gravity)
    found = identify(model, base_parameters(model), signals, settings)
    assert found.verdict == "not_explained"
    np.testing.assert_allclose(found.gravity.best, robot.model.gravity, atol=0.1)

"""Identification of simulated arms, and the verdicts on recordings that do not fit."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.validation import torque_metrics
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings

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
    return identify(model, base_parameters(model), signals, settings, EstimatorOptions(method=method))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "method"), [*zip(SIMULATED, ("ols", "wls", "iwls"), strict=True)])
def test_a_simulated_arm_is_found_again(recordings: dict[str, SimulatedData], name: str, method: str) -> None:
    model, data = load_robot(name).model, recordings[name]
    found = fit(model, data, method)
    true = found.base.theta(standard_parameters(model, found.base.standard))
    z = (found.theta - true) / found.std
    assert np.mean(np.abs(z) < 1.96) >= 0.85
    assert found.metrics.relative_error < 0.02
    assert (found.metrics.R > 0.99).all()
    assert found.diagnosis.named is None
    assert found.verdict != "not_explained"
    assert found.status.count("undetermined") == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "direction"), [("arm7", (0.0, 0.0, 1.0)), ("space6", (0.0, -1.0, -1.0))])
def test_wrong_mounting_direction_is_flagged_with_evidence(
    recordings: dict[str, SimulatedData], name: str, direction: tuple[float, float, float]
) -> None:
    model, data = load_robot(name).model, recordings[name]
    turned = replace(model, gravity=9.81 * np.array(direction) / np.linalg.norm(direction))
    found = fit(turned, data)
    assert found.verdict == "not_explained"
    named = found.diagnosis.named
    assert named.kind == "gravity"
    np.testing.assert_allclose(named.gravity, model.gravity, atol=0.1)
    assert named.left < 0.5
    reason = next(r for r in found.reasons if r.startswith("gravity along"))
    assert "mounting direction" in reason
    assert "%" in reason


def test_microgravity_is_fitted_and_believed() -> None:
    model = replace(load_robot("arm7").model, gravity=np.zeros(3))
    found = fit(model, simulate(model, 4))
    assert found.diagnosis.named is None
    assert found.verdict != "not_explained"


def test_too_little_data_is_refused(recordings: dict[str, SimulatedData]) -> None:
    model, data = load_robot("arm7").model, recordings["arm7"]
    settings = SignalSettings(10.0)
    signals = prepare(data.t, data.channels["q"], data.channels["tau"], settings)
    base = base_parameters(model)
    with pytest.raises(DataError, match="no rows between 100 s and 200 s"):
        identify(model, base, replace(signals, part=(100.0, 200.0)), settings)
    with pytest.raises(DataError, match="parameters: record longer"):
        identify(model, base, replace(signals, part=(2.0, 2.1)), settings)


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

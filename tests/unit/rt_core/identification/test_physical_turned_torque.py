"""A torque channel with its sign turned: possible links must not hide it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.estimate import EstimatorOptions
from rt_core.identification.identify import Identification, identify
from rt_core.identification.preprocess import DataError, SignalSettings, prepare
from rt_core.model.base import base_parameters
from sim_backend.arm.robot import SimulatedData
from tests.lab.arms.physical import simulated

MODEL = load_robot("space6").model
BASE = base_parameters(MODEL)
SETTINGS = SignalSettings(10.0, min_velocity=MODEL.standstill_velocity)
PRIORS = {"known": None, "unknown": replace(MODEL, inertial=None, dynamics=None)}


@pytest.fixture(scope="module")
def data() -> SimulatedData:
    return simulated(MODEL, 3, 10.0, candidates=2)


def fit(data: SimulatedData, turned: int | None, prior: str, method: str = "physical") -> Identification:
    tau = data.channels["tau"].copy()
    if turned is not None:
        tau[:, turned] *= -1.0
    options = EstimatorOptions(method=method, prior=PRIORS[prior])  # type: ignore[arg-type]
    return identify(MODEL, BASE, prepare(data.t, data.channels["q"], tau, SETTINGS), SETTINGS, options)


@pytest.mark.parametrize("prior", PRIORS)
def test_as_recorded_it_is_accepted(data: SimulatedData, prior: str) -> None:
    found = fit(data, None, prior)
    assert found.verdict in ("ok", "weak_excitation")
    assert found.plausibility.negative_coulomb == ()


@pytest.mark.parametrize("joint", range(MODEL.n))
@pytest.mark.parametrize("prior", PRIORS)
def test_each_joint_turned_is_refused_or_doubtful(data: SimulatedData, prior: str, joint: int) -> None:
    try:
        found = fit(data, joint, prior)
    except DataError as error:
        assert "signs" in str(error)  # noqa: PT017
    else:
        assert found.verdict in ("doubtful", "not_explained")
        assert found.reasons
        assert "determined" not in found.status or found.verdict == "not_explained"


@pytest.mark.parametrize("joint", [4, 5])
def test_plausibility_is_that_of_free_parameters(data: SimulatedData, joint: int) -> None:
    """Possible parameters hold no negative friction and a positive mass matrix, and leave a small error here."""
    found = fit(data, joint, "unknown")
    free = fit(data, joint, "known", "wls")
    assert found.theta[BASE.names.index(f"fc{joint + 1}")] >= 0.0
    assert found.metrics.relative_error < 0.15
    assert found.plausibility == free.plausibility
    assert found.plausibility.negative_coulomb == (joint,)
    assert found.verdict == "not_explained"
    assert any(MODEL.joints[joint].name in reason and "Coulomb" in reason for reason in found.reasons)

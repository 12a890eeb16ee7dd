"""What poses can determine: known counts, structures, and the rank of a model that leaves nothing out."""

import numpy as np
import pytest

from rt_core.calibration.error_model import ErrorModel, error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.identifiability import Identifiability, condition_number, correlated_pairs, identifiability
from rt_core.calibration.sample import Sample
from rt_core.model.dh import chain_from_dh, chain_from_mdh
from rt_core.model.robot import RobotModel
from tests.lab.arms.calibration import PANDA, PLANAR_2R, SCARA, UR10, postures, random_arm

GENERAL_6R = random_arm(6, "dh", np.random.default_rng(1))
GENERAL_9R = random_arm(9, "mdh", np.random.default_rng(2))
ARMS = {
    "planar_2r": PLANAR_2R, "scara": SCARA, "ur10": UR10, "panda": PANDA, "general_6r": GENERAL_6R,
    "general_9r": GENERAL_9R,
}  # fmt: skip


def found_for(
    geometry: Geometry, orientation: bool, count: int = 150, tool: tuple[float, ...] | None = None
) -> tuple[ErrorModel, Sample, Identifiability]:
    model = error_model(geometry, orientation=orientation)
    if tool is not None:
        model = model.with_frame("tool", np.eye(3), np.array(tool))
    q = postures(geometry, count, np.random.default_rng(4))
    positions, rotations = model.predict(q, np.zeros(model.size))
    sample = Sample.of(q, positions, rotations if orientation else None)
    return model, sample, identifiability(model, sample)


@pytest.mark.parametrize(
    ("name", "on_axis", "position", "pose"),
    [
        # 4 a revolute joint, 2 a sliding one, 6 for the ends of the chain; position only: less the tool's 3 turns.  A
        # point on the last axis does not show what turns about it, nor where exactly the axis is: 2 less.
        ("general_6r", 27, 27, 30),  # the last row of this table leads off the axis
        ("general_9r", 37, 39, 42),
        ("ur10", 25, 27, 30),
        ("panda", 29, 31, 34),
        # Heights along parallel axes are one number: 4n + 6 - 1 for three of them, and so on.
        ("planar_2r", 11, 11, 14),
        ("scara", 15, 17, 20),
    ],
)
def test_rank(name: str, on_axis: int, position: int, pose: int) -> None:
    off_axis = (0.05, 0.03, 0.1)
    assert found_for(ARMS[name], False)[2].rank == on_axis
    assert found_for(ARMS[name], False, tool=off_axis)[2].rank == position
    assert found_for(ARMS[name], True, tool=off_axis)[2].rank == pose


@pytest.mark.parametrize("orientation", [False, True], ids=["position", "pose"])
@pytest.mark.parametrize("name", ["scara", "ur10", "general_9r"])
def test_dh_with_beta_misses_no_error(name: str, orientation: bool) -> None:
    """Six errors a placement are all there can be; their rank is found from differences and singular values."""
    geometry = ARMS[name]
    chain = (chain_from_mdh if geometry.convention == "mdh" else chain_from_dh)(geometry.rows)
    whole = RobotModel("arm", chain.joints, tip_rotation=chain.tip[0], tip_translation=chain.tip[1])
    model, sample, _ = found_for(Geometry.from_model(whole), orientation)
    h = 1e-5
    columns = [(model.residual(sample, h * e) - model.residual(sample, -h * e)).ravel() for e in np.eye(model.size)]
    rank = np.linalg.matrix_rank(np.array(columns), rtol=1e-6)
    assert found_for(geometry, orientation)[2].rank == rank


@pytest.mark.parametrize("name", ["scara", "ur10", "panda"])
def test_what_is_fixed_says_on_what_it_depends(name: str) -> None:
    model, sample, found = found_for(ARMS[name], True)
    J = model.jacobian(sample, np.zeros(model.size)).reshape(-1, model.size)
    free = {model.names[k] for k in found.free}
    listed = [item.name for item in found.fixed if item.reason != "parallel_axes"]
    assert sorted([*free, *listed]) == sorted(model.names)
    for item in found.fixed:
        if item.reason == "dependent":
            assert {other for other, _ in item.on} <= free
            same = sum(amount * J[:, model.index(other)] for other, amount in item.on)
            own = J[:, model.index(item.name)]
            assert np.linalg.norm(same - own) <= 1e-3 * np.linalg.norm(own)


def test_a_joint_that_stands_still_is_found() -> None:
    model, sample, whole = found_for(GENERAL_6R, True)
    q = sample.q.copy()
    q[:, 2] = 0.4
    found = identifiability(model, Sample.of(q, sample.positions, sample.rotations))
    assert found.rank == whole.rank - 4
    assert {"theta3", "d3"} & {item.name for item in found.fixed}


def test_excluded_parameters_are_held() -> None:
    model, sample, whole = found_for(UR10, True)
    found = identifiability(model, sample, excluded=("a2", "base_rz"))
    assert {item.name for item in found.fixed if item.reason == "excluded"} == {"a2", "base_rz"}
    assert found.rank == whole.rank - 1  # joint 1's zero is seen now that the base's turn is known
    assert "theta1" in {model.names[k] for k in found.free}
    with pytest.raises(ValueError, match="a12"):
        identifiability(model, sample, excluded=("a12",))


def test_measures_of_the_poses_are_those_of_numpy() -> None:
    model, sample, found = found_for(UR10, True)
    J = model.jacobian(sample, np.zeros(model.size), found.free).reshape(-1, found.rank)
    assert found.condition_number == pytest.approx(np.linalg.cond(J / np.linalg.norm(J, axis=0)), rel=1e-9)
    assert condition_number(np.ones((3, 2))) > 1e15


def test_correlated_pairs_are_named_the_strongest_first() -> None:
    covariance = np.array([[1.0, 1.9, 0.1], [1.9, 4.0, -1.98], [0.1, -1.98, 1.0]])
    pairs = correlated_pairs(("a", "b", "c"), covariance)
    assert [pair[:2] for pair in pairs] == [("b", "c"), ("a", "b")]
    assert [pair[2] for pair in pairs] == pytest.approx([-0.99, 0.95])

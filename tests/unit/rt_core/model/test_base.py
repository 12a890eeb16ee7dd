"""Base parameters: their number against the rank of Pinocchio's regressor, their meaning against the torque."""

import re
from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters, random_states
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from tests.lab.arms.random_arms import KINDS, pinocchio_regressor, random_arm, random_motion
from tests.unit.rt_core.model.test_regressor import ARMS, coupled_arm


def rank(columns: np.ndarray) -> int:
    """Rank by SVD with columns of unit length; the gap in the singular values has to be plain."""
    length = np.linalg.norm(columns, axis=0)
    values = np.linalg.svd(columns[:, length > 1e-10 * length.max()] / length[length > 1e-10 * length.max()])[1]
    found = int((values > 1e-9 * values[0]).sum())
    assert values[found - 1] > 1e-7 * values[0]
    return found


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_count_equals_the_rank_of_pinocchios_regressor(kind: int) -> None:
    for seed in range(kind, ARMS, len(KINDS)):
        model, twin = random_arm(seed)
        states = random_motion(np.random.default_rng([seed, 1]), 20 + 4 * model.n, model.n)
        expected = rank(pinocchio_regressor(twin, *states).reshape(-1, 10 * model.n))
        base = base_parameters(model, tolerance=1e-8)  # axes of random arms may be closer than any robot's
        assert len(base) == expected, model.name
        assert base.smallest_kept > 1e3 * base.largest_dropped, model.name


@pytest.mark.parametrize("name", ["space6", "staubli_tx40", "emps"])
def test_same_torque_from_base_parameters_and_from_standard_ones(name: str) -> None:
    model = load_robot(name).model
    base = base_parameters(model)
    phi = np.random.default_rng(8).normal(size=len(base.standard))
    states = random_states(model, 40, seed=5)
    tau = regressor(model, base.standard, *states) @ phi
    theta = base.theta(phi)
    scale = np.abs(tau).max()
    np.testing.assert_allclose(regressor(model, base.layout, *states) @ theta, tau, atol=1e-9 * scale)
    # the sparsest representative gives the same torque and the same base parameters
    np.testing.assert_allclose(regressor(model, base.standard, *states) @ base.phi(theta), tau, atol=1e-9 * scale)
    np.testing.assert_allclose(base.theta(base.phi(theta)), theta, rtol=1e-12)


TERM = re.compile(r"(?:(?P<sign>[+-]) )?(?:(?P<factor>[0-9.e+-]+)\*)?(?P<name>[A-Za-z]+[0-9]+)")


@pytest.mark.parametrize("model", [load_robot("arm7").model, coupled_arm()], ids=["arm7", "coupled"])
def test_expressions_read_as_the_mapping_says(model: RobotModel) -> None:
    base = base_parameters(model)
    phi = np.random.default_rng(3).normal(size=len(base.standard))
    values = dict(zip(base.standard.names, phi, strict=True))
    for text, lead, value in zip(base.expressions, base.names, base.theta(phi), strict=True):
        terms = list(TERM.finditer(text))
        assert " ".join(term.group() for term in terms) == text
        assert terms[0]["name"] == lead
        assert terms[0]["sign"] is None
        total = sum(
            (-1.0 if term["sign"] == "-" else 1.0) * float(term["factor"] or 1.0) * values[term["name"]]
            for term in terms
        )
        assert total == pytest.approx(value, abs=2e-5 * sum(abs(v) for v in phi))


def test_textbook_regrouping_of_the_last_link() -> None:
    """Khalil and Dombre: of a revolute joint's link, Iyy goes into Ixx, and m and mz move inwards."""
    base = base_parameters(load_robot("arm7").model)
    assert dict(zip(base.names, base.expressions, strict=True))["Ixx7"] == "Ixx7 - Iyy7"
    assert not {"m7", "mz7", "Iyy7"} & set(base.names)


def test_microgravity_leaves_fewer_parameters_and_no_constant_torque() -> None:
    ground = load_robot("arm7").model
    space = replace(ground, gravity=np.zeros(3))
    base = base_parameters(space)
    assert len(base) < len(base_parameters(ground))
    q, _, _ = random_states(space, 10)
    rigid = base.layout.is_link
    still = regressor(space, base.layout, q, np.zeros_like(q), np.zeros_like(q))
    assert np.abs(still[:, :, rigid]).max() == 0.0


def test_joints_locked_by_their_limits() -> None:
    """A joint whose limits leave one posture: only what that posture shows is a parameter."""
    model = load_robot("arm7").model
    locked = replace(model.joints[1], lower=4.0, upper=4.0)
    q, _, _ = random_states(replace(model, joints=(model.joints[0], locked, *model.joints[2:])), 50)
    assert (q[:, 1] == 4.0).all()

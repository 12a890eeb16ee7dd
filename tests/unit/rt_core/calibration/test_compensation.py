"""Commands for Cartesian targets: found wherever there is a posture, and jumps between them told."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.calibration.compensation import compensate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from tests.lab.arms.calibration import UR10, postures


def corrected() -> Geometry:
    """The arm with errors of some millimetres."""
    model = error_model(UR10, base=False, tool=False)
    x = np.where(model.of_arm, np.random.default_rng(1).normal(0.0, 2e-3, model.size), 0.0)
    joints, (rotation, translation) = model.joints(x)
    return Geometry("placements", joints=joints, tip_rotation=rotation, tip_translation=translation)


@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_the_arm_reaches_is_found(seed: int) -> None:
    """Near a stretched elbow the nominal arm may not reach what the corrected one does."""
    arm = corrected()
    model = error_model(arm, base=False, tool=False)
    q = postures(UR10, 30, np.random.default_rng(2))
    q[::3, 2] = 1e-3  # stretched
    positions, rotations = model.predict(q, np.zeros(model.size))
    found = compensate(UR10, arm, positions, rotations, seed=seed)
    assert found.reached.all()
    again, _ = model.predict(found.commands, np.zeros(model.size))
    np.testing.assert_allclose(again, positions, atol=2e-6)
    assert len(found.jumps) <= 29


def test_a_jump_is_told_and_a_smooth_way_has_none() -> None:
    arm = corrected()
    model = error_model(arm, base=False, tool=False)
    q = np.linspace([0.1, -1.0, 1.2, 0.3, 1.0, 0.2], [0.5, -0.8, 1.0, 0.6, 1.3, 0.0], 12)
    positions, rotations = model.predict(q, np.zeros(model.size))
    smooth = compensate(UR10, arm, positions, rotations, start=q)
    assert (smooth.reached.all(), smooth.jumps) == (True, ())
    turned = q.copy()
    turned[6:] = q[6:] * [1.0, 1.0, 1.0, 1.0, -1.0, 1.0] + [0.0, 0.0, 0.0, np.pi, 0.0, np.pi]  # the wrist turned over
    jump = compensate(UR10, arm, positions, rotations, start=turned).jumps[0]
    assert (jump.start, jump.end) == (5, 6)
    assert jump.step > 1.0

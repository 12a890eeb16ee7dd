"""What a check cannot see is named: parts of the torque, coupled motors, the tip, bodies and pairs of bodies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.constraints import Constraints
from rt_core.excitation.design import Designer
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.limits import Limits
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.unchecked import torque_gaps
from rt_core.excitation.workspace_regions import Box, Capsule, Sphere
from rt_core.model.robot import JointDynamics, RobotModel, Transmission
from rt_core.types import FloatArray
from tests.lab.arms.excitation import arm, joint, three, two

BOX = ((0.0, 1.0),) * 3
HAND = Capsule("hand", 2, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0), 0.03)
UPPER = Capsule("upper", 0, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0), 0.03)
WALL = Capsule("wall", -1, (2.0, 0.0, 0.0), (2.0, 1.0, 0.0), 0.1)
FOOT = Capsule("foot", -1, (0.0, 0.0, -0.5), (0.0, 0.0, -0.4), 0.1, base=True)


def unchecked(model: RobotModel, **given: object) -> tuple[str, ...]:
    settings = ExcitationSettings(**given)  # type: ignore[arg-type]
    return Constraints(model, Limits.of(model, settings), settings).unchecked


def test_no_torque_and_no_places() -> None:
    assert "link parameters" in unchecked(replace(two(), inertial=None))[0]
    assert "effort limit" in unchecked(arm(joint("strong", effort=np.inf)))[0]
    mixed = unchecked(arm(joint("weak"), joint("strong", effort=np.inf)))[0]
    assert "torque of strong" in mixed
    assert "weak" not in mixed
    assert unchecked(two(), workspace=BOX) == ("collisions",)


def without(values: FloatArray, row: int) -> FloatArray:
    found = values.copy()
    found[row] = 0.0
    return found


def test_parts_of_the_torque_that_are_not_known() -> None:
    model = three()
    assert model.inertial is not None
    assert model.dynamics is not None
    assert torque_gaps(model) == ()
    assert torque_gaps(replace(model, dynamics=None)) == (
        "friction and rotor inertia in the torque: the robot description does not give them",
    )
    (bare,) = torque_gaps(replace(model, inertial=without(model.inertial, 1)))
    assert bare == "links moved by second in the torque: the robot description does not give their parameters"
    dynamics = model.dynamics
    smooth = JointDynamics(
        dynamics.armature, without(dynamics.viscous, 0), without(dynamics.coulomb, 0), dynamics.offset
    )
    assert torque_gaps(replace(model, dynamics=smooth)) == (
        "friction of first in the torque: the robot description does not give it",
    )
    assert torque_gaps(replace(model, dynamics=replace(dynamics, armature=np.zeros(3)))) == (
        "rotor inertia in the torque: the robot description does not give it",
    )
    assert torque_gaps(replace(model, armature=False)) == ()  # it acts, parameter or not
    assert "link parameters" in torque_gaps(replace(model, inertial=None))[0]
    assert bare in unchecked(replace(model, inertial=without(model.inertial, 1)))


def test_motors_that_turn_with_another_joint() -> None:
    matrix = np.diag([-100.0, 80.0, 50.0])
    plain = Transmission(matrix, np.zeros(3), np.ones(3))
    coupled = Transmission(matrix + np.array([[0.0] * 3, [0.0] * 3, [0.0, 50.0, 0.0]]), np.zeros(3), np.ones(3))
    said = "limits of the motors of slide, which are coupled: they are judged at the joints"
    assert said not in unchecked(replace(three(), transmission=plain))
    assert said in unchecked(replace(three(), transmission=coupled))


@pytest.mark.parametrize(
    ("region", "holds"),
    [
        (Sphere((0.0, 0.0, 0.0), 1.0), True),
        (Box((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), link=2, point=(0.0, 0.0, 0.1)), True),
        (Sphere((0.0, 0.0, 0.0), 1.0, "outside"), False),
        (Sphere((0.0, 0.0, 0.0), 1.0, link=0), False),
    ],
)
def test_what_holds_the_tip(region: Box | Sphere, holds: bool) -> None:
    assert ("workspace of the tip: none is set" in unchecked(three(), regions=(region,))) is not holds


def test_bodies_that_are_missing_or_not_compared() -> None:
    def said(*bodies: Capsule, **given: object) -> tuple[str, ...]:
        return unchecked(three(), workspace=BOX, bodies=bodies, **given)

    second = replace(UPPER, name="lower", link=1)
    assert said(HAND, UPPER, second, WALL) == ("collisions of neighbours: lower with hand, lower with upper",)
    assert said(HAND, WALL) == ("collisions of the links moved by first, second: no body covers them",)
    assert said(HAND, UPPER, second, FOOT)[0] == (
        "collisions with what stands around the arm: no body on link -1 covers it"
    )
    assert "foot with upper" in said(HAND, UPPER, FOOT)[2]
    assert said(HAND, UPPER, second, WALL, skip_pairs=(("wall", "hand"),))[1:] == (
        "collisions that pairs or skip_pairs leave out: wall with hand",
    )
    assert said(HAND, WALL, pairs=(("hand", "wall"),)) == said(HAND, WALL)
    assert said(HAND) == ("collisions",)
    many = [replace(HAND, name=f"finger {k}") for k in range(9)]
    assert said(*many, second, UPPER, WALL)[0].endswith(" and 4 more")


def test_bodies_that_touch_however_the_arm_stands() -> None:
    model = load_robot("space6").model
    wrist = [Capsule(f"wrist {k}", k, (0.0, 0.0, 0.0), (0.0, 0.0, 0.01), 0.4) for k in (3, 5)]
    with pytest.raises(ExcitationError, match="however the arm stands: wrist 5 to wrist 3: make them smaller"):
        Designer(model, ExcitationSettings(bodies=(*wrist, WALL))).design("gradient", 0)
    apart = ExcitationSettings(bodies=(*wrist, WALL), skip_pairs=(("wrist 3", "wrist 5"),))
    Designer(model, apart).constraints.check_bodies()

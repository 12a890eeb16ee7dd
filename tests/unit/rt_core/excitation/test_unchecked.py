"""What a check cannot see is named: parts of the torque, coupled motors, the tip, bodies and pairs of bodies."""

from dataclasses import replace

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation.constraints import Constraints
from rt_core.excitation.design import Designer
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.limits import Limits
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.shapes import Box, Capsule, Sphere
from rt_core.excitation.unchecked import torque_gaps
from rt_core.model.robot import RobotModel, Transmission
from rt_core.types import FloatArray
from tests.lab.arms.excitation import three

BOX = ((0.0, 1.0),) * 3
HAND = Capsule("hand", 2, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0), 0.03)
UPPER = Capsule("upper", 0, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0), 0.03)
WALL = Capsule("wall", -1, (2.0, 0.0, 0.0), (2.0, 1.0, 0.0), 0.1)
FOOT = Capsule("foot", -1, (0.0, 0.0, -0.5), (0.0, 0.0, -0.4), 0.1, base=True)


def unchecked(model: RobotModel, **given: object) -> tuple[str, ...]:
    settings = ExcitationSettings(**given)  # type: ignore[arg-type]
    return Constraints(model, Limits.of(model, settings), settings).unchecked


def without(values: FloatArray, row: int) -> FloatArray:
    found = values.copy()
    found[row] = 0.0
    return found


def test_parts_of_the_torque_that_are_not_known() -> None:
    model = three()
    assert torque_gaps(model) == ()
    assert "friction and rotor inertia" in torque_gaps(replace(model, dynamics=None))[0]
    (bare,) = torque_gaps(replace(model, inertial=without(model.inertial, 1)))
    assert bare.startswith("links moved by second in the torque")
    dynamics = model.dynamics
    smooth = replace(dynamics, viscous=without(dynamics.viscous, 0), coulomb=without(dynamics.coulomb, 0))
    assert "friction of first in" in torque_gaps(replace(model, dynamics=smooth))[0]
    assert "rotor inertia in" in torque_gaps(replace(model, dynamics=replace(dynamics, armature=np.zeros(3))))[0]
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


def test_what_holds_the_tip() -> None:
    missing = "workspace of the tip: none is set"
    for region in (Sphere((0.0,) * 3, 1.0), Box((0.0,) * 3, (1.0,) * 3, link=2, point=(0.0, 0.0, 0.1))):
        assert missing not in unchecked(three(), regions=(region,))
    for region in (Sphere((0.0,) * 3, 1.0, "outside"), Sphere((0.0,) * 3, 1.0, link=0)):
        assert missing in unchecked(three(), regions=(region,))


def test_bodies_that_are_missing_or_not_compared() -> None:
    def said(*bodies: Capsule, **given: object) -> tuple[str, ...]:
        return unchecked(three(), workspace=BOX, bodies=bodies, **given)

    second = replace(UPPER, name="lower", link=1)
    assert said(HAND, UPPER, second, WALL) == ("collisions of neighbours: lower with hand, lower with upper",)
    assert said(HAND, WALL) == ("collisions of the links moved by first, second: no body covers them",)
    assert said(HAND, UPPER, second, FOOT)[0].startswith("collisions with what stands around the arm")
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

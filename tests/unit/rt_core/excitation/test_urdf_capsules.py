"""Capsules of a URDF cover its shapes, on the links that carry them."""

import itertools

import numpy as np
import pytest

from rt_core.excitation.shapes import Capsule
from rt_core.excitation.urdf_capsules import capsules_from_urdf
from rt_core.model.urdf import UrdfError, chain_from_urdf, rotation_from_rpy
from rt_core.types import FloatArray
from tests.lab.files import FILES

URDF = (FILES / "capsules.urdf").read_text(encoding="utf-8")


def covers(capsule: Capsule, points: FloatArray) -> bool:
    start, along = np.array(capsule.start), np.array(capsule.end) - np.array(capsule.start)
    length = along @ along
    share = np.clip((points - start) @ along / length, 0.0, 1.0) if length > 0.0 else np.zeros(len(points))
    return bool((np.linalg.norm(points - start - share[:, None] * along, axis=1) <= capsule.radius + 1e-12).all())


def corners(size: tuple[float, float, float]) -> FloatArray:
    return 0.5 * np.array(list(itertools.product((-1.0, 1.0), repeat=3))) * np.array(size)


def test_shapes_are_covered_on_their_links() -> None:
    found = capsules_from_urdf(URDF)
    by_name = {capsule.name: capsule for capsule in found.capsules}
    assert (found.unread, found.moving) == (("hand.stl",), ())
    assert {name for name, capsule in by_name.items() if capsule.base} == {"base"}
    assert {name: capsule.link for name, capsule in by_name.items()} == {
        "base": -1, "arm": 0, "arm 2": 0, "bracket": 0, "fixture": -1,
    }  # fmt: skip
    assert chain_from_urdf(URDF).links == ("arm", "hand")
    arm = corners((0.1, 0.5, 0.2)) @ rotation_from_rpy((0.3, -0.2, 0.5)).T + [0.1, 0.2, 0.3]
    assert covers(by_name["arm"], arm)
    assert by_name["arm"].radius == pytest.approx(0.5 * np.hypot(0.1, 0.2))
    bracket = (corners((0.3, 0.1, 0.1)) + np.array([0.0, 0.0, 0.1])) @ rotation_from_rpy((0.0, 0.0, 1.0)).T
    assert covers(by_name["bracket"], bracket + np.array([0.4, 0.0, 0.0]))
    rim = np.array([[0.1 * np.cos(a), 0.1 * np.sin(a), z] for a in np.linspace(0, 6, 20) for z in (-0.15, 0.15)])
    assert covers(by_name["base"], rim)
    assert by_name["arm 2"].start == by_name["arm 2"].end == (0.0, 0.0, 0.0)
    assert by_name["fixture"].start == (1.0, 0.0, 0.0)


ROUND = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
HALL = f"""<robot name="hall">
<link name="world"/><link name="table">{ROUND}</link><link name="plate">{ROUND}</link><link name="arm"/>
<link name="finger">{ROUND}</link><link name="tip">{ROUND}</link><link name="lift">{ROUND}</link><link name="base"/>
<joint name="t" type="fixed"><origin xyz="0 0 -0.4"/><parent link="world"/><child link="table"/></joint>
<joint name="l" type="prismatic"><origin xyz="0 5 0"/><parent link="world"/><child link="lift"/></joint>
<joint name="w" type="fixed"><origin xyz="1 2 3" rpy="0.3 -0.2 0.5"/><parent link="world"/><child link="base"/></joint>
<joint name="p" type="fixed"><origin xyz="0 0 0.1"/><parent link="base"/><child link="plate"/></joint>
<joint name="j" type="revolute"><parent link="plate"/><child link="arm"/></joint>
<joint name="f" type="prismatic"><origin xyz="0.3 0 0"/><parent link="arm"/><child link="finger"/></joint>
<joint name="e" type="fixed"><origin xyz="0.2 0 0"/><parent link="arm"/><child link="tip"/></joint>
</robot>"""


@pytest.mark.parametrize("base", ["base", "world"])
def test_what_stands_around_the_base_is_covered_too(base: str) -> None:
    """A table is beside the base, not below it; a finger and a lift move, but not with the joints of the arm."""
    found = capsules_from_urdf(HALL, base_link=base, tip_link="tip")
    links = {"table": -1, "plate": -1, "finger": 0, "tip": 0, "lift": -1}
    assert {one.name: one.link for one in found.capsules} == links
    assert set(found.moving) == {"finger", "lift"}
    assert [one.name for one in found.capsules if one.base] == ["plate"]
    rotation = rotation_from_rpy((0.3, -0.2, 0.5))
    seen = rotation.T @ (np.array([0.0, 0.0, -0.4]) - [1.0, 2.0, 3.0]) if base == "base" else [0.0, 0.0, -0.4]
    (table,) = (one for one in found.capsules if one.name == "table")
    np.testing.assert_allclose(table.start, seen, atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('<sphere radius="0.07"/>', '<sphere radius="0"/>', "radius must be above 0"),
        ('<sphere radius="0.07"/>', "<sphere/>", "radius is missing"),
        ('<sphere radius="0.07"/>', '<capsule radius="1"/>', "<capsule> is not supported"),
        ('size="0.1 0.5 0.2"', 'size="0.1 0.5"', "must be 3 finite numbers"),
    ],
)
def test_shapes_that_are_wrong(old: str, new: str, what: str) -> None:
    with pytest.raises(UrdfError, match='link "arm" <collision>.*' + what):
        capsules_from_urdf(URDF.replace(old, new))

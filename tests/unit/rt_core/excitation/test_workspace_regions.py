"""Distances of segments against brute force, places against link frames, margins against samples."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.excitation._workspace_kernels import closest, workspace_shares_at
from rt_core.excitation.constraints import Constraints
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import FourierSeries
from rt_core.excitation.limits import Limits
from rt_core.excitation.settings import ExcitationSettings
from rt_core.excitation.shapes import Box, Capsule, Sphere
from rt_core.excitation.workspace_regions import WorkspaceLimits
from rt_core.model.base import random_states
from rt_core.model.frames import link_poses
from rt_core.types import FloatArray
from tests.lab.arms.excitation import series_on, three, two

HAND = Capsule("hand", 1, (0.1, 0.1, 0.0), (0.2, 0.1, 0.1), 0.06)
FOOT = Capsule("foot", -1, (0.0, 0.0, 0.0), (0.0, 0.0, 0.1), 0.1)


def segments(count: int, seed: int) -> list[FloatArray]:
    """Ends (count, 3) of two segments each; some are points, some parallel, some meet."""
    a, b, c, d = np.random.default_rng(seed).normal(size=(4, count, 3))
    b[:20] = a[:20]
    d[10:30] = c[10:30]
    d[30:50] = c[30:50] + 0.7 * (b - a)[30:50]
    d[50:60] = c[50:60] - 2.0 * (b - a)[50:60]
    c[60:70] = 0.3 * a[60:70] + 0.7 * b[60:70]
    return [a, b, c, d]


def test_distance_of_segments() -> None:
    a, b, c, d = segments(100, 1)
    u = np.linspace(0.0, 1.0, 401)
    for k in range(100):
        one = a[k] + u[:, None] * (b - a)[k]
        other = c[k] + u[:, None] * (d - c)[k]
        least = np.sqrt(((one[:, None] - other) ** 2).sum(axis=2)).min()
        step = (np.linalg.norm((b - a)[k]) + np.linalg.norm((d - c)[k])) / 800
        s, t = closest(tuple((a - c)[k]), tuple((b - a)[k]), tuple((d - c)[k]))
        found = np.linalg.norm((a - c)[k] + s * (b - a)[k] - t * (d - c)[k])
        assert least - step <= found <= least + 1e-12


def test_points_are_where_the_link_frames_say() -> None:
    for model in (three(), load_robot("franka_panda").model):
        last = model.n - 1
        regions = (
            Sphere((0.1, 0.2, 0.3), 0.5),
            Sphere((0.1, 0.2, 0.3), 0.5, "outside", link=1, point=(0.1, -0.2, 0.3), name="elbow"),
            Box((-0.1, -0.2, -0.3), (0.3, 0.2, 0.1), link=0, name="first"),
        )
        bodies = (FOOT, replace(HAND, link=last))
        workspace = WorkspaceLimits.of(model, regions, bodies, 0.03)
        q = random_states(model, 8, seed=1)[0]
        found = workspace_shares_at(workspace, model, q)
        assert found.shape == (9, 8) == (workspace.rows, 8)
        for t, row in enumerate(q):
            poses = link_poses(model, row)

            def at(link: int, point: Any, poses: FloatArray = poses) -> FloatArray:
                return np.asarray((poses[link] @ np.append(point, 1.0))[:3])

            tip = np.linalg.norm(at(last, model.tip_translation) - [0.1, 0.2, 0.3])
            elbow = np.linalg.norm(at(1, (0.1, -0.2, 0.3)) - [0.1, 0.2, 0.3])
            assert found[0, t] == pytest.approx(tip / 0.5 - 1.0)
            assert found[1, t] == pytest.approx(1.0 - elbow / 0.5)
            origin = at(0, (0.0, 0.0, 0.0))
            low, high = np.array([-0.1, -0.2, -0.3]), np.array([0.3, 0.2, 0.1])
            np.testing.assert_allclose(found[2:5, t], 2.0 * (low - origin) / (high - low), atol=1e-12)
            np.testing.assert_allclose(found[5:8, t], 2.0 * (origin - high) / (high - low), atol=1e-12)
            u = np.linspace(0.0, 1.0, 2001)[:, None]
            hand = at(last, HAND.start) + u * (at(last, HAND.end) - at(last, HAND.start))
            foot = np.clip(hand @ np.array([0.0, 0.0, 1.0]), 0.0, 0.1)[:, None] * np.array([0.0, 0.0, 1.0])
            apart = np.linalg.norm(hand - foot, axis=1).min()
            assert found[8, t] == pytest.approx(1.0 - apart / (0.06 + 0.1 + 0.03), abs=1e-5)
        np.testing.assert_allclose(workspace_shares_at(workspace, model, q[:1]), found[:, :1], atol=1e-12)


def test_which_bodies_are_compared() -> None:
    model = load_robot("arm7").model
    bodies = [Capsule(f"b{k}", k, (0.0, 0.0, 0.0), (0.0, 0.0, 0.1), 0.05) for k in range(-1, 7)]
    names = WorkspaceLimits.of(model, (), bodies).pair_names
    assert len(names) == 8 * 7 // 2 - 6
    assert "b0 to b-1" in names  # what stands still is in the way of the first link, too
    assert "b1 to b0" not in names
    own = WorkspaceLimits.of(model, (), [replace(bodies[0], base=True), *bodies[1:]]).pair_names
    assert set(names) - set(own) == {"b0 to b-1"}
    assert WorkspaceLimits.of(model, (), bodies, pairs=[("b0", "b1")]).pair_names == ("b0 to b1",)
    left = WorkspaceLimits.of(model, (), bodies, skip_pairs=[("b-1", "b0"), ("b6", "b2")]).pair_names
    assert set(names) - set(left) == {"b0 to b-1", "b6 to b2"}
    everywhere = [replace(body, name=f"{body.name} {k}") for body in bodies for k in range(8)]
    with pytest.raises(ExcitationError, match="1408 pairs of bodies are to be compared, 1000 at most"):
        WorkspaceLimits.of(model, (), everywhere)


def test_margins_of_places_against_samples() -> None:
    model = two()
    sphere = Sphere((0.0, 0.0, 0.2), 0.6, name="reach")
    post = Sphere((0.4, 0.3, 0.2), 0.1, "outside", name="post")
    bodies = (FOOT, replace(HAND, link=1), Capsule("wall", -1, (1.0, -1.0, 0.0), (1.0, 1.0, 0.0), 0.05))
    settings = ExcitationSettings(
        f0_hz=0.2, regions=(sphere, post), bodies=bodies, clearance_m=0.01, slow_share=0.2, slow_velocity=(0.3, 0.05)
    )
    held = Constraints(model, Limits.of(model, settings), settings)
    assert held.unchecked == ("collisions of the links moved by first: no body covers them",)
    rng = np.random.default_rng(3)
    series = FourierSeries(0.2, np.array([0.3, -0.2]), *rng.normal(scale=0.4, size=(2, 2, 3)))
    found = {(m.where, m.quantity): m for m in held.margins(series)}
    q, dq, _ = series_on(series.as_dict(), np.linspace(0.0, 5.0, 20_001)[:-1])
    shares = workspace_shares_at(held.workspace, model, q).max(axis=1)
    rows = [("reach", "inside"), ("post", "outside"), ("hand to foot", "distance"), ("wall to hand", "distance")]
    for key, share in zip(rows, shares, strict=True):
        assert found[key].share == pytest.approx(-share, abs=1e-5)
    assert found["reach", "inside"].reached == pytest.approx(0.6 * (1.0 + shares[0]), abs=1e-5)
    assert found["post", "outside"].reached == pytest.approx(0.1 * (1.0 - shares[1]), abs=1e-5)
    for joint, limit, v in zip(model.joints, (0.3, 0.05), dq.T, strict=True):
        margin = found[joint.name, "slow time"]
        assert margin.reached == pytest.approx((np.abs(v) <= limit).mean(), abs=3e-4)
        assert margin.share == pytest.approx(margin.reached / 0.2 - 1.0)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"regions": (Sphere((0.0, 0.0, 0.0), 1.0, link=2),)}, "region 'tip': link 2 does not exist"),
        ({"regions": (Sphere((0.0, 0.0, 0.0), 1.0), Sphere((0.0, 0.0, 0.0), 2.0))}, "two regions are named 'tip'"),
        ({"bodies": (HAND, replace(HAND, link=0))}, "same name"),
        ({"bodies": (replace(HAND, link=-2),)}, "'hand': link -2"),
        ({"bodies": (HAND,), "pairs": (("hand", "nose"),)}, "no capsule is named 'nose'; known: hand"),
        ({"bodies": (HAND, replace(HAND, name="palm")), "pairs": (("hand", "palm"),)}, "same link"),
        ({"slow_share": 0.1, "slow_velocity": (0.1,)}, "slow_velocity has 1 values"),
    ],
)
def test_places_that_do_not_fit_the_arm(change: dict[str, Any], what: str) -> None:
    settings = ExcitationSettings(**change)
    with pytest.raises(ExcitationError, match=what):
        Constraints(two(), Limits.of(two(), settings), settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sphere((0.0, 0.0, np.nan), 1.0),
        lambda: Sphere((0.0, 0.0, 0.0), 1.0, "beside"),  # type: ignore[arg-type]
        lambda: Box((0.0, 0.0, 0.0), (1.0, 1.0, 0.0)),
        lambda: Capsule("x", 0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), -0.1),
        lambda: Capsule("x", 0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.1, base=True),
        lambda: ExcitationSettings(slow_share=1.0),
    ],
)
def test_places_that_are_none(make: Any) -> None:
    with pytest.raises(ExcitationError):
        make()

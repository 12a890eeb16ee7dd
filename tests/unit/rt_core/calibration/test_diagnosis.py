"""Wrong units are told by a part of the poses, which shows all that the whole shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.calibration._diagnosis import thinned
from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.sample import Contacts, Sample
from rt_core.types import IntArray
from tests.lab.arms.calibration import PANDA, UR10, forward, frame, postures
from tests.lab.arms.sockets import in_sockets

COUNT = 1000


def numbered(counts: list[int]) -> IntArray:
    """Numbers from 0, so many of each, one after the other."""
    return np.repeat(np.arange(len(counts)), counts)


def test_few_poses_stay_as_they_are() -> None:
    sample = Sample.of(np.zeros((300, 2)), np.zeros((300, 3)))
    assert thinned(sample) is sample


def test_poses_of_one_kind_are_spread_evenly() -> None:
    sample = Sample.of(np.arange(COUNT, dtype=float)[:, None], np.zeros((COUNT, 3)))
    found = thinned(sample).q[:, 0]
    assert found.size == 300
    assert (found[0], found[-1]) == (0.0, COUNT - 1.0)
    assert np.diff(found).max() <= 4.0


@pytest.mark.parametrize("kind", ["station", "head", "point"])
def test_all_kinds_are_kept(kind: str) -> None:
    numbers = numbered([990, 4, 6])
    sample = replace(Sample.of(np.arange(COUNT, dtype=float)[:, None], np.zeros((COUNT, 3))), **{kind: numbers})
    found = thinned(sample)
    kept = getattr(found, kind)
    assert np.bincount(kept).tolist() == [297, 4, 6]
    np.testing.assert_array_equal(kept, numbers[found.q[:, 0].astype(int)])  # each pose with its own number


def test_each_head_is_kept_at_each_station() -> None:
    """Heads in turns of two, stations one after the other: every third pose would miss combinations."""
    station, head = numbered([980, 20]), np.arange(COUNT) % 2
    sample = replace(Sample.of(np.zeros((COUNT, 2)), np.zeros((COUNT, 3))), station=station, head=head)
    found = thinned(sample)
    assert np.bincount(2 * found.station + found.head).tolist() == [147, 147, 6, 6]


def test_many_sockets_with_few_poses_each_are_all_kept() -> None:
    sample = Sample.at_points(np.zeros((COUNT, 7)), np.arange(COUNT) // 2)
    assert len(thinned(sample)) == COUNT


@pytest.mark.soak
def test_degrees_from_a_station_with_few_poses() -> None:
    """Twelve of a thousand poses are from a second place, and two heads were measured in turns."""
    tools = [frame((0.06, -0.04, 0.12), (0.0, 0.0, 0.0)), frame((-0.08, 0.05, 0.1), (0.0, 0.0, 0.0))]
    bases = [frame((1.5, -2.0, 0.7), (0.4, -0.3, 2.2)), frame((-3.0, 1.0, 0.2), (0.1, 0.2, -1.5))]
    q = postures(UR10, COUNT, np.random.default_rng(1))
    station, head = numbered([988, 12]), np.arange(COUNT) % 2
    measured = np.empty((COUNT, 3))
    for s, base in enumerate(bases):
        for h, tool in enumerate(tools):
            own = (station == s) & (head == h)
            measured[own] = forward(UR10, q[own], {"a2": 1e-3, "theta3": 2e-3}, base, tool)[:, :3, 3]
    result = calibrate(UR10, 180.0 / np.pi * q, measured, station=station, head=head)
    assert result.verdict != "ok"
    assert result.doubts.unit == "joint positions look like degrees, not radians"


def test_degrees_in_many_sockets() -> None:
    """Four sockets hold most of the poses; a fifth has three, which any third pose alone would not show."""
    rng = np.random.default_rng(2)
    sockets = rng.uniform(0.2, 0.5, (5, 3))
    q, numbers = in_sockets(PANDA, {"a4": 1e-3}, np.array([0.05, 0.03, 0.15]), sockets, 8, rng)
    # The same poses again and again, as of a ball that was read many times in each posture.
    rows = np.concatenate((np.tile(np.flatnonzero(numbers < 4), 30), np.flatnonzero(numbers == 4)[:3]))
    assert rows.size > 900
    result = calibrate(PANDA, 180.0 / np.pi * q[rows], Contacts(numbers[rows]))
    assert result.verdict != "ok"
    assert result.doubts.unit == "joint positions look like degrees, not radians"

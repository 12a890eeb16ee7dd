"""Wrong units are told by a part of the poses, which shows all that the whole shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.doubts.causes import thinned
from rt_core.calibration.sample import Contacts, Sample
from rt_core.types import IntArray
from tests.lab.arms.calibration import PANDA
from tests.lab.arms.sockets import in_sockets

COUNT = 1000


def numbered(counts: list[int]) -> IntArray:
    """Numbers from 0, so many of each, one after the other."""
    return np.repeat(np.arange(len(counts)), counts)


@pytest.mark.parametrize("kind", ["station", "head", "point"])
def test_all_kinds_are_kept(kind: str) -> None:
    numbers = numbered([990, 4, 6])
    sample = replace(Sample.of(np.arange(COUNT, dtype=float)[:, None], np.zeros((COUNT, 3))), **{kind: numbers})
    found = thinned(sample)
    kept = getattr(found, kind)
    assert np.bincount(kept).tolist() == [297, 4, 6]
    np.testing.assert_array_equal(kept, numbers[found.q[:, 0].astype(int)])  # each pose with its own number


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

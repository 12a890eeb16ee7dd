"""Exact measurements of 100 random arms of 3 to 9 joints give every identifiable parameter."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.calibration.calibrate import calibrate
from rt_core.calibration.error_model import error_model
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.identifiability import identifiability
from rt_core.calibration.sample import Sample
from tests.lab.arms.calibration import as_measured, forward, frame, postures, table

LIMIT = 1e-9


def drawn_arm(rng: np.random.Generator) -> Geometry:
    """Lengths and twists of any size, right angles and parallel axes among them, and now and then a sliding joint.

    Axes that are all parallel are left out: there errors change what can be told, and the linear rank is not all.
    """
    n = int(rng.integers(3, 10))
    alpha = np.zeros(n)
    while np.abs(np.sin(alpha[1:-1])).max() < 0.2:
        alpha = np.where(
            rng.random(n) < 0.5, rng.uniform(-1.6, 1.6, n), rng.choice([0.0, np.pi / 2.0, -np.pi / 2.0], n)
        )
    a = np.where(rng.random(n) < 0.3, 0.0, rng.uniform(0.05, 0.5, n))
    d = np.where(rng.random(n) < 0.3, 0.0, rng.uniform(0.05, 0.5, n))
    slides = (int(rng.integers(n)),) if rng.random() < 0.2 else ()
    return table(a.tolist(), alpha.tolist(), d.tolist(), str(rng.choice(["dh", "mdh"])), slides)


@pytest.mark.slow  # where kernels are interpreted
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.soak) for first in range(10, 100, 10))])
def test_random_arms(first: int) -> None:
    for seed in range(first, first + 10):
        rng = np.random.default_rng([seed, 1])
        geometry = drawn_arm(rng)
        orientation = seed % 2 == 0
        q = postures(geometry, 30 * geometry.n, rng)
        base = frame(tuple(rng.uniform(-2.0, 2.0, 3)), tuple(rng.uniform(-2.0, 2.0, 3)))
        tool = frame(tuple(rng.uniform(0.05, 0.2, 3)), tuple(rng.uniform(-1.0, 1.0, 3)))
        model = error_model(geometry, orientation=orientation)
        model = model.with_frame("base", base[:3, :3], base[:3, 3]).with_frame("tool", tool[:3, :3], tool[:3, 3])
        nothing = np.zeros(model.size)
        positions, rotations = model.predict(q, nothing)
        sample = Sample.of(q, positions, rotations if orientation else None)
        free = [model.names[k] for k in identifiability(model, sample).free]
        errors = {name: float(rng.normal(0.0, 1e-3)) for name in free if "_" not in name}
        result = calibrate(geometry, q, as_measured(forward(geometry, q, errors, base, tool), orientation))
        found = {p.name: p.value for p in result.parameters if p.value is not None}
        assert set(found) == set(errors), seed
        worst = max((abs(found[name] - value) for name, value in errors.items()), default=0.0)
        assert worst <= LIMIT, (seed, worst)
        assert result.training.after.maximum < 1e-10, seed

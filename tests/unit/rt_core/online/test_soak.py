"""Rich motion, a joint at rest, all at rest, rich motion again, a step of friction: 300,000 frames.

The scenario and its oracle are those of `benchmarks/soak.py`, which runs ten million frames of it.
"""

from __future__ import annotations

import pytest

from benchmarks.estimator_soak import Phases, SoakResult, soak


def check(result: SoakResult) -> None:
    assert result.problems == []
    assert set(result.error) == {"rich", "one_held", "all_held", "rich_again", "step"}
    assert max(result.error.values()) < 0.01, result.error
    assert result.step_error < 0.05
    assert result.step_error_after < 0.05
    assert result.flags_checked > 20 * result.parameters
    assert result.flags_wrong == 0


@pytest.mark.soak
def test_300_000_frames() -> None:
    phases = Phases()
    result = soak("space6", seed=1, phases=phases, held=2, stepped=1)
    assert result.frames == round(phases.ends["step"] * 1000.0) == 300_000
    check(result)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "seed", "held", "stepped"), [("arm7", 7, 1, 1), ("arm9", 5, 1, 8)], ids=["arm7", "arm9"]
)
def test_other_arms_and_joints(robot: str, seed: int, held: int, stepped: int) -> None:
    phases = Phases(rich=40.0, one_held=40.0, all_held=30.0, rich_again=30.0, step=20.0)
    check(soak(robot, seed, phases, held=held, stepped=stepped))

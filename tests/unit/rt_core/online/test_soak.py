"""Rich motion, a joint at rest, all at rest, rich motion again, a step of friction: 300,000 frames.

The scenario and its oracle are those of `benchmarks/soak.py`, which runs ten million frames of it.
"""

from __future__ import annotations

import pytest

from benchmarks.estimator_soak import Phases, soak


@pytest.mark.soak
def test_300_000_frames() -> None:
    phases = Phases()
    result = soak("space6", seed=1, phases=phases, held=2, stepped=1)
    assert result.frames == round(phases.ends["step"] * 1000.0) == 300_000
    assert result.problems == []
    assert set(result.error) == {"rich", "one_held", "all_held", "rich_again", "step"}
    assert max(result.error.values()) < 0.01, result.error
    assert result.step_error < 0.05
    assert result.step_error_after < 0.05
    assert result.flags_checked > 20 * result.parameters
    assert result.flags_wrong == 0

"""The demonstration: how it judges itself, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.demo.demo import coverage
from tests.lab.command_line import thetad


def test_coverage_counts_values_within_their_intervals() -> None:
    truth = np.array([1.0, -2.0, 0.0, 5.0])
    std = np.array([0.1, 0.1, 0.1, 0.0])
    off = (0.0, 1.95 * std, -1.97 * std, [0.1, 0.3, 0.1, 1e-9], np.nan)
    assert [coverage(truth, truth + np.array(each), std) for each in off] == [1.0, 1.0, 0.25, 0.5, 0.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--excite", "5"), "--excite 5"),
        (("--validate", "1e9"), "--validate 1e+09"),
        (("--excite", "nan"), "--excite nan"),
        (("--seed", "-1"), "--seed"),
        (("--robot", "franka_panda"), "inertial"),  # an arm without link figures cannot be simulated
    ],
)
def test_wrong_options(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    thetad("demo", "--output", tmp_path / "out", *options).refused(words)

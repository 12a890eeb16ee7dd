"""The demonstration: how it judges itself, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.demo.demo import Demonstration, coverage
from tests.lab.command_line import thetad


def test_coverage_counts_values_within_their_intervals() -> None:
    truth = np.array([1.0, -2.0, 0.0, 5.0])
    std = np.array([0.1, 0.1, 0.1, 0.0])
    assert coverage(truth, truth, std) == 1.0
    assert coverage(truth, truth + 1.95 * std, std) == 1.0
    assert coverage(truth, truth - 1.97 * std, std) == 0.25
    assert coverage(truth, truth + np.array([0.1, 0.3, 0.1, 1e-9]), std) == 0.5
    assert coverage(truth, np.full(4, np.nan), std) == 0.0


def test_coverage_of_honest_estimates_is_95_percent() -> None:
    rng = np.random.default_rng(0)
    truth, std = rng.normal(size=20_000), rng.uniform(0.1, 2.0, 20_000)
    assert coverage(truth, truth + std * rng.normal(size=20_000), std) == pytest.approx(0.95, abs=0.006)
    assert coverage(truth, truth + 2.0 * std * rng.normal(size=20_000), std) < 0.7


def test_configuration_of_the_run(tmp_path: Path) -> None:
    config = Demonstration("arm7", 30.0, 12.0, 4).config(tmp_path)
    (arm,) = config.arm
    assert (arm.robot, arm.hold, arm.state.resume) == ("arm7", True, False)
    assert config.daemon.estimates_port == config.daemon.frames_port == 0
    assert config.state_dir == tmp_path / "state"
    assert config.recording_dir(arm) == tmp_path
    assert arm.driver.kind == "sim"
    first, pause, second = arm.driver.motion.segments
    assert (first.duration_s, second.duration_s, pause.kind) == (30.0, 12.0, "hold")
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--excite", "5"), "--excite 5"),
        (("--validate", "1e9"), "--validate 1e+09"),
        (("--excite", "nan"), "--excite nan"),
        (("--seed", "-1"), "--seed"),
        (("--seed", "x"), "--seed"),
        (("--robot", "arm8"), "arm8"),
    ],
)
def test_wrong_options(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    line = thetad("demo", "--output", tmp_path / "out", *options).refused()
    assert words in line


def test_an_arm_without_link_figures_cannot_be_simulated(tmp_path: Path) -> None:
    thetad("demo", "--output", tmp_path / "out", "--robot", "franka_panda").refused("franka_panda", "inertial")

"""The demonstration: how it judges itself, and one short run of all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.demo.demo import MIN_COVERAGE, MIN_R, Demonstration, coverage
from service.models.document import load_model
from tests.lab.command_line import thetad, thetad_process


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


@pytest.mark.soak
def test_a_short_run(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    done = thetad_process("demo", "--excite", "20", "--validate", "10", "--json", "-o", out, timeout_s=280.0)
    assert done.code in (0, 1), done
    found = done.json
    assert "exciting motion" in done.err
    assert found["frames"]["lost"] == 0
    assert found["frames"]["sent"] == found["frames"]["received"]
    assert found["frames"]["received"] == pytest.approx(30_500, abs=2)
    for kind in ("online", "batch"):
        assert len(found[kind]["R"]) == len(found[kind]["rmse"]) == 6
        assert found[kind]["verdict"] in ("ok", "worse_than_fit", "not_explained")
    assert found["coverage_95"] == min(found["online"]["coverage_95"], found["batch"]["coverage_95"])
    good = (
        min(found["online"]["R"]) > MIN_R and min(found["batch"]["R"]) > MIN_R and found["coverage_95"] >= MIN_COVERAGE
    )
    assert found["passed"] == good == (done.code == 0)
    assert min(found["batch"]["R"]) > MIN_R
    assert min(found["online"]["R"]) > MIN_R
    recording = read_recording(found["files"]["recording"])
    assert recording.samples == found["frames"]["received"]
    for kind in ("online", "batch"):
        model = load_model(found["files"][f"{kind}_model"])
        assert model.document["kind"] == kind
        assert len(model.base) == found["parameters"] == 58
    again = thetad(
        "validate", found["files"]["batch_model"], found["files"]["recording"], "--span", "20.25s:", "--json"
    )  # fmt: skip
    assert again.json["relative_error"] == found["batch"]["relative_error"]
    assert Path(found["files"]["report"]).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (out / "daemon.log").exists()

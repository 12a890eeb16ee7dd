"""The verdict on each joint, from made-up statuses and from recordings with something wrong."""

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.identification.identify import identify
from rt_core.identification.joint_verdict import JointVerdict, joint_verdicts
from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.validation import Metrics
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.batch import arm

BASE = base_parameters(arm())


def metrics(explained: float = 0.99, count: int = 100) -> Metrics:
    plain = np.full(3, 0.1)
    shares = np.array([0.99, explained, 0.99])
    return Metrics(0.05, plain, plain, plain, np.sqrt(np.abs(shares)), shares, np.array([100.0, count, 100.0]))


def of_joint_2(counts: dict[str, int], found: Metrics, **options: object) -> JointVerdict:
    """Verdict on the second joint, with the given numbers of each status there and all else determined."""
    mine = np.flatnonzero(BASE.layout.joint == 1)
    status = ["determined"] * len(BASE)
    words = [word for word, number in counts.items() for _ in range(number)]
    for k, word in zip(mine, words, strict=False):
        status[k] = word
    verdicts = joint_verdicts(BASE.layout, status, found, **options)  # type: ignore[arg-type]
    if options.get("accepted", True):
        assert verdicts[0].word == verdicts[2].word == "well determined"
    return verdicts[1]


@pytest.mark.parametrize(
    ("counts", "found", "options", "word", "reason"),
    [
        ({}, metrics(), {}, "well determined", "all"),
        ({"weak": 3}, metrics(), {}, "well determined", "3 of"),
        ({"weak": 8}, metrics(), {}, "weak", "too small"),
        ({"undetermined": 1}, metrics(), {}, "weak", "does not determine fv2"),
        ({"undetermined": 1, "weak": 20}, metrics(), {}, "undetermined", "does not determine"),
        ({"prior": 2}, metrics(), {}, "weak", "prior stands in"),
        ({"dropped": 2, "weak": 1}, metrics(), {}, "well determined", "3 of"),
        ({"doubtful": 8}, metrics(), {}, "weak", "not modelled"),
        ({"doubtful": 2, "weak": 1}, metrics(), {}, "well determined", "; 2 of"),
        ({}, metrics(0.7), {}, "weak", "70 %"),
        ({}, metrics(0.2), {}, "not explained", "20 %"),
        ({}, metrics(np.nan), {}, "not explained", "constant"),
        ({}, metrics(np.nan, 0), {}, "not explained", "no rows"),
        ({}, metrics(), {"accepted": False}, "undetermined", "rejected"),
        ({}, metrics(), {"accepted": False, "negative_coulomb": (1,)}, "not explained", "negative"),
    ],
)
def test_word_and_reason(
    counts: dict[str, int], found: Metrics, options: dict[str, object], word: str, reason: str
) -> None:
    verdict = of_joint_2(counts, found, **options)
    assert verdict.word == word
    assert reason in verdict.reason


def test_counts_sum_to_the_parameters_of_the_joint() -> None:
    verdict = of_joint_2({"undetermined": 2, "weak": 3, "doubtful": 1}, metrics())
    total = int((BASE.layout.joint == 1).sum())
    assert verdict.counts == {"undetermined": 2, "weak": 3, "doubtful": 1, "determined": total - 6}


@pytest.fixture(scope="module")
def recorded() -> SimulatedData:
    settings = MotionSettings(seed=3, candidates=2)
    return SimulatedArm(load_robot("space6").model, SimSettings(rate_hz=250.0), settings, seed=3).simulate(20.0)


def words(data: SimulatedData, factor: np.ndarray | float = 1.0) -> list[str]:
    """The verdict on each joint of an arm whose torques are `factor` times as measured."""
    model = load_robot("space6").model
    signals = prepare(data.t, data.channels["q"], factor * data.channels["tau"], SignalSettings(10.0))
    fit = identify(model, base_parameters(model), signals, SignalSettings(10.0, min_velocity=np.full(6, 0.01)))
    accepted, negative = fit.verdict != "not_explained", fit.plausibility.negative_coulomb
    found = joint_verdicts(fit.base.layout, fit.status, fit.metrics, accepted=accepted, negative_coulomb=negative)
    return [verdict.word for verdict in found]


def test_a_good_recording(recorded: SimulatedData) -> None:
    assert words(recorded) == ["well determined"] * 6


@pytest.mark.parametrize(("joint", "factor"), [(3, 0.0), (4, -1.0)], ids=["dead", "turned"])
def test_a_torque_channel_that_is_dead_or_turned(recorded: SimulatedData, joint: int, factor: float) -> None:
    found = words(recorded, np.where(np.arange(6) == joint, factor, 1.0))
    assert found[joint] == "not explained"
    assert "well determined" not in found

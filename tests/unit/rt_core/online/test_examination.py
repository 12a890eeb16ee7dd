"""Examinations of the estimator's own frames: errors that are there from the first one, and do not show online."""

from __future__ import annotations

import numpy as np
import pytest

from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.examination import FIRST_S, LAST_S, Examination, ExaminationTimes
from rt_core.online.monitors.frame_diagnosis import examine
from rt_core.types import FloatArray
from tests.unit.rt_core.online.test_trust import RATE, SETTINGS, estimator_of, moving

SECONDS = round(20.0 * RATE)


def examination(tau: FloatArray) -> Examination:
    model, data = moving()
    settings = SignalSettings(10.0, min_velocity=model.standstill_velocity)
    signals = prepare(data.t[:SECONDS], data.channels["q"][:SECONDS], tau[:SECONDS], settings, rate_hz=RATE)
    return examine(model, base_parameters(model), signals, settings)


def test_clean_frames_pass() -> None:
    found = examination(moving()[1].channels["tau"])
    assert (found.text, found.wrong) == ("", False)
    assert not found.moved.any()


@pytest.mark.parametrize("what", ["late", "swapped"])
def test_nothing_is_supported_by_frames_that_are_wrong_from_the_first_one(what: str) -> None:
    tau = moving()[1].channels["tau"]
    tau = np.roll(tau, 4, axis=0) if what == "late" else tau[:, [1, 0, 2]]
    found = examination(tau)
    assert ("ms late against the motion (20" if what == "late" else "joint_1 from the column of joint_2") in found.text
    assert found.wrong


def test_what_was_found_is_told_kept_with_the_state_and_ended_by_the_next() -> None:
    estimator = estimator_of()
    std = estimator.report().std
    other = OnlineEstimator(estimator.model, SETTINGS, RATE)
    for moved, wrong in ((std, True), (100.0 * std, False), (0.0 * std, False)):
        estimator.take_examination(Examination(moved, "why", wrong))
        other.restore(estimator.state())
        for mine in (estimator, other):
            report = mine.report(note=False)
            assert mine.trust.reasons == (("diagnosis",) if wrong else ())
            assert ("why" in mine.trust.text(("a", "b", "c"))) == wrong
            # what was restored has seen no motion yet
            valued = "estimated" if mine is estimator else "frozen"
            assert (valued in report.status) == (not wrong and not moved.any())
            np.testing.assert_allclose(report.std, np.hypot(std, moved))
    estimator.take_examination(Examination(std, "why", True))
    estimator.reset()
    assert estimator.trust.reasons == ()


def test_it_is_due_after_some_motion_then_ever_more_rarely_and_again_after_a_restart() -> None:
    times, at = ExaminationTimes(), []
    for k in range(round(1200.0 / 0.5)):
        motion_s, t_ns = 0.5 * (k % 1600), round(5e8 * k)
        if times.due(motion_s, t_ns, believed=not 20.0 < motion_s < 40.0):
            at.append((motion_s, times.from_ns))
    begun = round(5e8 * 1600)
    first, again = [m for m, from_ns in at if from_ns < 0], [m for m, from_ns in at if from_ns == begun]
    assert first[:5] == [FIRST_S, 40.0, 80.0, 160.0, 320.0]
    assert set(np.diff(first[4:])) == {LAST_S}
    assert again == first[: len(again)]
    times.restart(100.0)
    assert not times.due(100.0 + FIRST_S - 0.5, 0, believed=True)
    assert times.due(100.0 + FIRST_S, 0, believed=True)

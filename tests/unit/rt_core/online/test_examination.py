"""Examinations of the estimator's own frames: errors that are there from the first one, and do not show online."""

import numpy as np
import pytest

from rt_core.identification.preprocess import SignalSettings, prepare
from rt_core.model.base import base_parameters
from rt_core.online import OnlineEstimator
from rt_core.online.monitors.examination import FIRST_S, LAST_S, Examination, ExaminationTimes
from rt_core.online.monitors.frame_diagnosis import examine
from tests.unit.rt_core.online.test_trust import RATE, SETTINGS, estimator_of, moving

SAID = {"clean": "", "late": "late against the motion (22.9 +- 1.4", "swapped": "joint_1 from the column of joint_2"}


@pytest.mark.parametrize("what", SAID)
def test_nothing_is_supported_by_frames_that_are_wrong_from_the_first_one(what: str) -> None:
    model, data = moving()
    t, q, tau = (x[: round(20.0 * RATE)] for x in (data.t, data.channels["q"], data.channels["tau"]))
    tau = {"clean": tau, "late": np.roll(tau, 4, axis=0), "swapped": tau[:, [1, 0, 2]]}[what]
    settings = SignalSettings(10.0, min_velocity=model.standstill_velocity)
    found = examine(model, base_parameters(model), prepare(t, q, tau, settings, rate_hz=RATE), settings)
    assert SAID[what] in found.text
    assert found.wrong == (what != "clean") == bool(found.text)
    assert found.wrong or not found.moved.any()


def test_what_was_found_is_told_kept_with_the_state_and_ended_by_the_next() -> None:
    estimator = estimator_of()
    std = estimator.report().std
    other = OnlineEstimator(estimator.model, SETTINGS, RATE)
    for moved, wrong in ((0.0 * std, False), (100.0 * std, False), (std, True)):
        estimator.take_examination(Examination(moved, "why", wrong, 7.5))
        other.restore(estimator.state())
        assert other.trust.examined.until_s == 7.5
        for mine, valued in ((estimator, "estimated"), (other, "frozen")):  # what was restored has seen no motion yet
            report = mine.report(note=False)
            assert mine.trust.reasons == (("diagnosis",) if wrong else ())
            assert ("why" in mine.trust.text(("a", "b", "c"))) == wrong
            assert (valued in report.status) == (not wrong and not moved.any())
            np.testing.assert_allclose(report.std, np.hypot(std, moved))
            np.testing.assert_allclose(np.sqrt(np.diag(mine.stated_covariance)), report.std)
    estimator.reset()
    assert estimator.trust.reasons == ()
    assert np.isnan(estimator.trust.examined.until_s)


def test_it_is_due_after_some_motion_then_ever_more_rarely_and_again_after_a_restart() -> None:
    times, at = ExaminationTimes(), []
    for k in range(2400):
        motion_s, t_ns = 0.5 * (k % 1600), round(5e8 * k)
        if times.due(motion_s, t_ns, believed=not 20.0 < motion_s < 40.0):
            at.append((motion_s, times.from_ns))
    first, again = [m for m, from_ns in at if from_ns < 0], [m for m, from_ns in at if from_ns == round(5e8 * 1600)]
    assert first[:5] == [FIRST_S, 40.0, 80.0, 160.0, 320.0]
    assert set(np.diff(first[4:])) == {LAST_S}
    assert again == first[: len(again)]
    times.restart(100.0)
    assert [times.due(100.0 + s, 0, believed=True) for s in (FIRST_S - 0.5, FIRST_S)] == [False, True]
    back_s = 100.0 + FIRST_S - 2.0  # the estimate was taken back
    assert [times.due(back_s + s, 7, believed=True) for s in (0.0, FIRST_S - 0.5, FIRST_S)] == [False, False, True]

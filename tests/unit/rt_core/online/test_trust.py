"""What speaks against an estimate: noise, signs, links that have left what they were; and when it is believed again."""

import re
from dataclasses import replace
from functools import lru_cache
from typing import get_args

import numpy as np
import pytest

from drivers.files.robots.file import load_robot
from rt_core.model.base import base_parameters
from rt_core.model.parameters import standard_parameters
from rt_core.model.robot import RobotModel
from rt_core.online import EstimateReport, OnlineEstimator, OnlineSettings
from rt_core.online.monitors.supply import Cause, FrameSupply
from rt_core.online.monitors.trust import CHANCE, disagreement
from rt_core.online.monitors.velocity import MISS, VelocityMonitor
from rt_core.types import FloatArray
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings
from tests.lab.arms.simulated import random_arm

RATE = 200.0
SETTINGS = OnlineSettings(update_hz=50.0)
CLEAN = round(40.0 * RATE)


def simulated(model: RobotModel, rate_hz: float, seconds: float) -> SimulatedData:
    motion = MotionSettings(seed=1, candidates=1, base_frequency_hz=0.2)
    return SimulatedArm(model, SimSettings(rate_hz=rate_hz, seed=1, torque_noise=0.004), motion).simulate(seconds)


@lru_cache
def moving() -> tuple[RobotModel, SimulatedData]:
    model = random_arm(3, 21)
    return model, simulated(model, RATE, 75.0)


def feed(
    estimator: OnlineEstimator, tau: FloatArray, start: int, stop: int, keep: int = 1, q: FloatArray | None = None
) -> list[EstimateReport]:
    """Feed frames; return the report of each second."""
    _, data = moving()
    reports = []
    for k in range(start, stop):
        if k % keep == 0:
            estimator.step(round(data.t[k] * 1e9), k, data.channels["q"][k], tau[k])
        if k % round(RATE) == 0:
            reports.append(estimator.report())
    return reports


def share(report: EstimateReport, status: str = "estimated") -> float:
    return report.status.count(status) / len(report.status)


def estimator_of() -> OnlineEstimator:
    model, data = moving()
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    reports = feed(estimator, data.channels["tau"], 0, CLEAN)
    assert not any("doubted" in report.status for report in reports[15:])
    return estimator


def test_a_joint_that_stands_with_one_torque_is_no_fault() -> None:
    """Beside joints that move: its brake is closed; and all else that was learned stays."""
    data = moving()[1]
    tau, q = data.channels["tau"].copy(), data.channels["q"].copy()
    tau[CLEAN:, 1], q[CLEAN:, 1] = 0.3, q[CLEAN, 1]
    estimator = estimator_of()
    for k in range(CLEAN, CLEAN + round(15.0 * RATE)):
        estimator.step(round(data.t[k] * 1e9), k, q[k], tau[k])
        assert "torque" not in estimator.trust.reasons


def test_a_torque_that_never_changes_is_none() -> None:
    model, data = moving()
    tau = data.channels["tau"].copy()
    tau[:, 1] = 0.3
    estimator = OnlineEstimator(model, SETTINGS, RATE)
    reports = feed(estimator, tau, 0, CLEAN)
    assert not any("estimated" in report.status for report in reports[15:])
    assert estimator.trust.reasons == ("torque",)
    assert estimator.trust.broken(("a", "b", "c")).startswith("the torque of b stays")


def test_a_wrong_sign_is_never_believed_and_a_restart_of_the_process_does_not_forget_it() -> None:
    model, data = moving()
    estimator = estimator_of()
    tau = data.channels["tau"].copy()
    tau[CLEAN:] *= -1.0
    reports = feed(estimator, tau, CLEAN, CLEAN + round(25.0 * RATE))
    assert all(share(report) == 0.0 for report in reports[3:])
    assert "signs" in estimator.trust.reasons
    assert "signs" in estimator.trust.broken(("a", "b", "c"))
    other = OnlineEstimator(model, SETTINGS, RATE)
    other.restore(estimator.state())
    assert other.trust.reasons == estimator.trust.reasons != ()
    old = {key: value for key, value in estimator.state().items() if not key.startswith("trust_")}
    other.restore(old)  # a file of an earlier version knows of no doubt
    assert not other.trust.doubted
    other.adopt(estimator.theta, estimator.covariance)
    assert not other.trust.doubted


def test_an_encoder_that_slips_slowly_is_told_by_the_links() -> None:
    """What it does to the torque is learned; no payload and no friction does it to the links."""
    model, rate = random_arm(6, 21), 100.0
    data = simulated(model, rate, 65.0)
    q = data.channels["q"].copy()
    q[:, 2] += 0.4 * np.clip((data.t - 38.0) / 5.0, 0.0, 1.0)
    estimator = OnlineEstimator(model, SETTINGS, rate)
    for k in range(data.t.size):
        estimator.step(round(data.t[k] * 1e9), k, q[k], data.channels["tau"][k])
    assert "disagreement" in estimator.trust.reasons
    assert share(estimator.report()) == 0.0


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_what_a_short_push_has_shaped_is_not_believed(size: float) -> None:
    model, data = moving()
    base = base_parameters(model)
    truth = base.theta(standard_parameters(model, base.standard))
    tau = data.channels["tau"].copy()
    tau[CLEAN : CLEAN + round(RATE), 1] += size * tau[:, 1].std()
    estimator = estimator_of()
    before = share(estimator.report())
    reports = feed(estimator, tau, CLEAN + 1, CLEAN + round(20.0 * RATE))
    given = np.array([[s == "estimated" for s in report.status] for report in reports])
    right = np.array([np.abs(report.theta - truth) < 1.96 * report.std for report in reports])
    assert not given.all()
    assert right[given].mean() >= 0.9
    assert share(reports[-1]) >= 0.9 * before


def test_a_payload_is_learned_anew_within_15_s() -> None:
    model, data = moving()
    base = base_parameters(model)
    inertial = model.inertial.copy()
    inertial[-1, 0] += 0.3 * inertial[-1, 0]  # a body at the last link's frame
    heavy = replace(model, inertial=inertial)
    truth = base.theta(standard_parameters(heavy, base.standard))
    after = simulated(heavy, RATE, 75.0)
    np.testing.assert_allclose(after.q, data.q, atol=1e-9)  # the motion does not depend on the load
    estimator = estimator_of()
    before = share(estimator.report())
    tau = np.concatenate((data.channels["tau"][:CLEAN], after.channels["tau"][CLEAN:]))
    late = feed(estimator, tau, CLEAN, CLEAN + round(18.0 * RATE))[15]
    assert share(late) >= 0.9 * before
    error = np.abs(late.theta - truth) / late.std
    assert (error < 1.96).mean() >= 0.9 or error.max() < 3.5


def test_noise_that_stays_is_accepted_after_a_few_restarts_and_widens_the_intervals() -> None:
    rng, rate = np.random.default_rng(3), 100.0
    estimator = OnlineEstimator(load_robot("emps").model, SETTINGS, rate)
    reasons: list[tuple[str, ...]] = [()]
    std: list[FloatArray] = []
    for k in range(round(130.0 * rate)):
        t = k / rate
        noise = (4.0 if t > 50.0 else 1.0) * rng.standard_normal()
        tau = -250.0 * 0.1 * np.sin(3.0 * t) + 20.0 * np.sign(np.cos(3.0 * t)) + noise
        estimator.step(round(t * 1e9), k, np.array([0.1 * np.sin(3.0 * t)]), np.array([tau]))
        if estimator.trust.reasons != reasons[-1]:
            reasons.append(estimator.trust.reasons)
        if k % 5000 == 4900:
            std.append(estimator.report().std)
    assert reasons[1] == ("noise",)
    assert reasons[-1] == ()
    assert len(reasons) < 12
    assert (std[-1] > 2.0 * std[0]).all()


def test_lost_frames_are_told_and_then_used() -> None:
    estimator = estimator_of()
    _, data = moving()
    reports = feed(estimator, data.channels["tau"], CLEAN, CLEAN + round(30.0 * RATE), keep=2)
    assert estimator.supply.cause == ""
    starved = [share(report, "starved") > 0.5 for report in reports]
    assert any(starved[:5])
    assert not starved[-1]
    assert not any("frozen" in report.status for report in reports)


def test_impossible_values_are_named() -> None:
    estimator = estimator_of()
    _, data = moving()
    feed(estimator, 1e6 * data.channels["tau"], CLEAN, CLEAN + round(5.0 * RATE))
    assert estimator.supply.cause == "impossible"
    assert share(estimator.report(), "starved") > 0.5


def test_disagreement_is_chi_squared_in_what_is_not_free() -> None:
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((12, 12))
    covariance = mix @ mix.T
    free = rng.standard_normal((12, 4))
    found = []
    for _ in range(2000):
        _, left, freedom, largest = disagreement(
            mix @ rng.standard_normal(12) + free @ rng.normal(0, 1e3, 4), covariance, free
        )
        found.append(left)
        assert 0.0 < largest <= left * (1.0 + 1e-9)
    assert freedom == 8
    assert np.mean(found) == pytest.approx(8.0, abs=0.4)
    assert np.var(found) == pytest.approx(16.0, rel=0.2)
    assert 0.0 < CHANCE < 0.01


@pytest.mark.parametrize(
    ("cause", "changed"),
    [
        ("lost", {"lost": 100}), ("invalid", {"invalid": 100}), ("impossible", {"impossible": 100}),
        ("held", {"held": 90, "gaps": 10}), ("gaps", {"gaps": 20}),
        ("", {"withheld": 100}), ("", {"samples": 100}), ("", {}),
    ],
)  # fmt: skip
def test_what_keeps_frames_from_being_learned_from_is_named(cause: str, changed: dict[str, int]) -> None:
    counts = dict.fromkeys((*get_args(Cause), "frames", "samples", "unused", "withheld"), 0)
    supply = FrameSupply()
    supply.look(counts, 100.0)
    supply.look(counts | {"frames": 100} | changed, 100.0)
    assert supply.cause == cause
    assert bool(supply.text) == bool(cause)
    supply.look(counts, 100.0)
    supply.look(counts | {"frames": 100} | changed, 100.0, moves=False)
    assert supply.cause == ("" if cause in ("held", "gaps") else cause)  # an encoder flickers on an arm that stands
    supply.cause = "lost"
    supply.restart()
    assert not supply.text


@pytest.mark.parametrize(
    ("scale", "late_s", "said"),
    [
        (1.0, 0.002, ""), (-1.0, 0.0, "wrong sign"), (1.1, 0.0, "1.1 times"), (1.0, 0.04, "ms late"),
        (0.0, 0.0, "not that"),
    ],
)  # fmt: skip
def test_velocities_are_compared_with_positions(scale: float, late_s: float, said: str) -> None:
    """One joint has the error, a second none; both have a coarse encoder and noise."""
    rng = np.random.default_rng(5)
    step, windows = 1e-3, []
    monitor = VelocityMonitor(2)
    for k in range(10):
        t = 0.5 * k + step * np.arange(260)
        q = np.stack([np.sin(2.0 * np.pi * 0.5 * t), 0.5 * np.cos(3.0 * t)])
        late = t - late_s
        dq = np.stack([scale * np.pi * np.cos(np.pi * late), -1.5 * np.sin(3.0 * t)])
        dq[0] += 0.0 if scale else np.sin(t)  # of nothing
        windows.append((np.round(q / 1e-4) * 1e-4, dq + 0.01 * rng.standard_normal(dq.shape)))
    for q, dq in windows:
        monitor.take(q, dq, step)
    assert monitor.joints.tolist() == [said != "", False]
    assert re.search(said, monitor.text(("a", "b")))


@pytest.mark.parametrize("rate_hz", [250.0, 1000.0])
@pytest.mark.parametrize("ripple", [0.0, 0.5])
def test_right_velocities_are_not_doubted_for_a_coarse_encoder(rate_hz: float, ripple: float) -> None:
    """Encoders of 10 to 23 bit at 0.005 to 2 rad/s; in a normal motion 6 % too fast and a wrong sign are told."""
    bits, speeds = (x.ravel() for x in np.meshgrid(np.arange(10, 24), np.geomspace(0.005, 2.0, 12)))
    step = 2.0 * np.pi / 2.0**bits
    monitors = {scale: VelocityMonitor(bits.size) for scale in (1.0, 1.06, -1.0)}
    rng, ever = np.random.default_rng(1), np.zeros(bits.size, dtype=bool)
    for k in range(24):
        t = 0.5 * k + np.arange(round(0.26 * rate_hz)) / rate_hz
        q = speeds[:, None] * (t + ripple / 4.0 * np.sin(4.0 * t))
        dq = speeds[:, None] * (1.0 + ripple * np.cos(4.0 * t)) + 2e-4 * rng.standard_normal(q.shape)
        for scale, monitor in monitors.items():
            monitor.take(np.round(q / step[:, None]) * step[:, None], scale * dq, 1.0 / rate_hz)
        ever |= monitors[1.0].joints
    fast = speeds * 0.05 > 10.0 * step
    assert fast.sum() > 40
    assert not ever.any()
    assert monitors[1.06].joints[fast & (speeds > 0.1)].all()
    assert monitors[-1.0].joints[fast & (speeds > 0.02)].all()


def test_a_doubt_of_velocities_does_not_flicker_and_ends() -> None:
    """A scale that is wrong by a little more than the limit, then right; a restart of the process changes nothing."""
    monitor, said = VelocityMonitor(1), []
    rng = np.random.default_rng(2)
    for k in range(120):
        t = 0.5 * k + 4e-3 * np.arange(65)
        scale = 1.0 + (1.2 * MISS + 0.006 * np.sin(0.4 * k) + 0.004 * rng.standard_normal() if k < 80 else 0.0)
        monitor.take(np.sin(t)[None], scale * np.cos(t)[None], 4e-3)
        said.append(bool(monitor.joints[0]))
        saved, sums, monitor = monitor.held(), monitor.sums, VelocityMonitor(1)
        monitor.sums = sums
        monitor.hold(saved)
        assert bool(monitor.joints[0]) == said[-1]
    assert np.count_nonzero(np.diff(said)) == 2
    assert not said[-1]

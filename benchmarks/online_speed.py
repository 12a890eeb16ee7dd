"""One frame of online estimation beside padasip's FilterRLS on the very same rows, and the spread of frame times."""

import time
from typing import Any

import numpy as np
import padasip

from drivers.files.robots.file import load_robot
from rt_core.model.regressor import regressor
from rt_core.online import OnlineEstimator, OnlineSettings
from rt_core.online.filters import filter_bank
from sim_backend.arm.robot import SimulatedArm, SimulatedData
from sim_backend.arm.settings import MotionSettings, SimSettings

RATE_HZ = 1000.0
ROUNDS = 101  # short and in turn: what else the machine does meets both alike
PEER_FRAMES = 5
OWN_FRAMES = 150


def simulated(robot: str, seconds: float) -> tuple[Any, SimulatedData]:
    model = load_robot(robot).model
    arm = SimulatedArm(model, SimSettings(rate_hz=RATE_HZ), MotionSettings(candidates=1), seed=1)
    return model, arm.simulate(seconds)


def beside_padasip(robot: str = "arm9") -> dict[str, Any]:
    """Filters, regressor and update with solve at every frame against the peer's row-by-row update alone.

    Processor time of the thread, so that a busy machine does not blur the ratio.
    """
    model, data = simulated(robot, 20.0)
    q, tau = data.channels["q"], data.channels["tau"]
    settings = OnlineSettings(update_hz=RATE_HZ)
    estimator = OnlineEstimator(model, settings, RATE_HZ)
    estimator.warm_up()
    bank = filter_bank(settings.cutoff_hz, RATE_HZ)
    first = 5000
    windows = np.lib.stride_tricks.sliding_window_view(
        q[first : first + 2 * bank.smooth.size + 200], bank.smooth.size, 0
    )
    states = [np.ascontiguousarray(windows @ taps) for taps in (bank.smooth, bank.first, bank.second)]
    rows = regressor(model, estimator.base.layout, *states)
    torque = tau[first + bank.delay :][: rows.shape[0]]
    peer = padasip.filters.FilterRLS(rows.shape[2], mu=float(np.exp(-1.0 / (settings.memory_s * RATE_HZ))))
    stamps = [round(t * 1e9) for t in data.t]
    at, row = 0, 0
    for _ in range(2000):
        estimator.step(stamps[at], at, q[at], tau[at])
        at += 1
    own, theirs = [], []
    for _ in range(ROUNDS):
        begin = time.thread_time()
        for _ in range(OWN_FRAMES):
            estimator.step(stamps[at], at, q[at], tau[at])
            at += 1
        own.append((time.thread_time() - begin) / OWN_FRAMES)
        begin = time.thread_time()
        for _ in range(PEER_FRAMES):
            for j in range(model.n):
                peer.adapt(torque[row, j], rows[row, j])
            row = (row + 1) % rows.shape[0]
        theirs.append((time.thread_time() - begin) / PEER_FRAMES)
    assert estimator.report().updates > OWN_FRAMES * ROUNDS
    ratios = np.array(theirs) / np.array(own)
    return {
        "robot": robot,
        "joints": model.n,
        "parameters": len(estimator.base),
        "frame_us": 1e6 * float(np.median(own)),
        "padasip_us": 1e6 * float(np.median(theirs)),
        "ratio": float(np.median(ratios)),
        "target": 40.0,
    }


def frame_times(robot: str = "arm9", frames: int = 100_000, update_hz: float = 100.0) -> dict[str, Any]:
    """Percentiles of the time that one frame takes, reports included ten times a second as a service would."""
    model, data = simulated(robot, 50.0)
    q, tau = data.channels["q"], data.channels["tau"]
    estimator = OnlineEstimator(model, OnlineSettings(update_hz=update_hz), RATE_HZ)
    estimator.warm_up()
    count = data.t.size
    spent = np.empty(frames)
    clock = time.perf_counter
    for k in range(frames):
        i = k % count
        stamp = round(k * 1e9 / RATE_HZ)
        begin = clock()
        estimator.step(stamp, k, q[i], tau[i])
        spent[k] = clock() - begin
    p50, p99, p999 = np.percentile(1e6 * spent, [50.0, 99.0, 99.9])
    return {
        "robot": robot,
        "frames": frames,
        "update_hz": update_hz,
        "p50_us": float(p50),
        "p99_us": float(p99),
        "p99.9_us": float(p999),
        "max_us": float(1e6 * spent.max()),
        "mean_us": float(1e6 * spent.mean()),
    }

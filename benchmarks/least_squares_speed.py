"""Compressed least squares beside SciPy's on the stacked rows, in the same run, with one BLAS thread."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as la

from drivers.files.robots.file import load_robot
from rt_core.identification.least_squares import Compressor, compress, solve
from rt_core.model.base import base_parameters, random_states
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray

ITERATIONS = 10
ROUNDS = 5
TARGET = 20.0  # times faster than one dense least-squares solve an iteration
COST_TARGET = 1.5  # in units of the structured QR alone
EQUAL = 1e-9


def problem(
    model: RobotModel, samples: int, seed: int = 0
) -> tuple[FloatArray, FloatArray, BoolArray, tuple[FloatArray, FloatArray, FloatArray]]:
    """Base regressor (n, p, K) at random states, torque (K, n) with unequal noise, all rows in use, the states."""
    base = base_parameters(model)
    states = random_states(model, samples, seed)
    Y = regressor_columns(model, base.layout, *states)
    rng = np.random.default_rng(seed)
    tau = np.einsum("npk,p->kn", Y, rng.normal(size=len(base)))
    tau += rng.normal(size=tau.shape) * np.geomspace(1.0, 0.05, model.n)
    return Y, tau, np.ones(tau.shape, dtype=bool), states


def structured_qr(Y: FloatArray, tau: FloatArray) -> list[FloatArray]:
    """Factor each joint's non-zero columns, plainly: what any exact compressed method has to pay once."""
    out = []
    for j in range(Y.shape[0]):
        columns = np.flatnonzero(Y[j].any(axis=1))
        rows = np.vstack((Y[j][columns], tau[None, :, j])).T
        out.append(la.qr(rows, mode="r", overwrite_a=True, check_finite=False)[0][: columns.size + 1])
    return out


def _dense_iwls(W: FloatArray, b: FloatArray, n: int, iterations: int) -> tuple[FloatArray, float]:
    """Solve the stacked rows (n*K, p) anew in each iteration; the parameters, and the time of the solves alone.

    Each joint's spread is corrected for the parameters that its rows pay for.
    """
    count, p = b.size // n, W.shape[1]
    sigma, theta, spent = np.ones(n), np.zeros(p), 0.0
    for _ in range(iterations):
        weight = np.repeat(1.0 / sigma, count)
        scaled, target = W * weight[:, None], b * weight
        begin = time.thread_time()
        theta = la.lstsq(scaled, target, check_finite=False)[0]
        spent += time.thread_time() - begin
        shares = la.solve_triangular(la.qr(scaled, mode="r", check_finite=False)[0][:p], scaled.T, trans="T")
        leverage = (shares**2).sum(axis=0).reshape(n, count).sum(axis=1)
        sigma = np.sqrt(((b - W @ theta) ** 2).reshape(n, count).sum(axis=1) / (count - leverage))
    return theta, spent


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of this thread, so that a busy machine does not blur ratios, and the result."""
    begin = time.thread_time()
    result = run()
    return time.thread_time() - begin, result


def iwls_beside_scipy(robot: str = "arm9", samples: int = 5000) -> dict[str, Any]:
    """Ten iterations from the rows to the parameters, against ten `scipy.linalg.lstsq` on the stacked rows."""
    Y, tau, use, _ = problem(load_robot(robot).model, samples)
    n, p, _ = Y.shape
    W = np.concatenate([Y[j].T for j in range(n)])
    b = np.concatenate([tau[:, j] for j in range(n)])

    def own() -> FloatArray:
        return solve(compress(Y, tau, use), p, "iwls", tolerance=0.0, limit=ITERATIONS - 1).theta

    own()
    wanted, peer_s = _dense_iwls(W, b, n, ITERATIONS)
    own_s, qr_s, peers = [], [], [peer_s]
    theta = wanted
    for _ in range(ROUNDS):
        peers.append(ITERATIONS * _timed(lambda: la.lstsq(W, b, check_finite=False))[0])
        for _ in range(5):
            qr_s.append(_timed(lambda: structured_qr(Y, tau))[0])
            spent, theta = _timed(own)
            own_s.append(spent)
    return {
        "robot": robot,
        "rows": int(b.size),
        "columns": p,
        "iterations": ITERATIONS,
        "own_ms": 1e3 * float(np.median(own_s)),
        "scipy_ms": 1e3 * float(np.median(peers)),
        "structured_qr_ms": 1e3 * float(np.median(qr_s)),
        "ratio": float(np.median(peers) / np.median(own_s)),
        "cost_in_structured_qr": float(np.median(own_s) / np.median(qr_s)),
        "difference": float(np.abs(theta - wanted).max() / np.abs(wanted).max()),
        "target": TARGET,
        "cost_target": COST_TARGET,
        "difference_target": EQUAL,
    }


def streamed_memory(robot: str = "arm9", chunk: int = 500, chunks: tuple[int, int] = (10, 40)) -> dict[str, Any]:
    """Peak memory while rows are built and compressed chunk by chunk, for a short and a long recording."""
    model = load_robot(robot).model
    base = base_parameters(model)
    theta = np.random.default_rng(0).normal(size=len(base))
    peaks = []
    for count in chunks:
        rng = np.random.default_rng(1)
        compressor = Compressor(model.n, len(base))
        out = np.zeros((model.n, len(base), chunk))
        tracemalloc.start()
        for _ in range(count):
            q, dq, ddq = rng.uniform(-1.0, 1.0, (3, chunk, model.n))
            Y = regressor_columns(model, base.layout, q, dq, ddq, out)
            tau = np.einsum("npk,p->kn", Y, theta) + rng.normal(size=(chunk, model.n))
            compressor.add(Y, tau, np.ones(tau.shape, dtype=bool))
        solve(compressor.triangles(), len(base), "iwls")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return {
        "robot": robot,
        "rows": [model.n * chunk * count for count in chunks],
        "peak_mb": [peak / 2**20 for peak in peaks],
        "growth": peaks[1] / peaks[0],
    }


def base_and_fit(robot: str = "space6", samples: int = 10_000, rounds: int = 5) -> dict[str, Any]:
    """Base-parameter reduction, regressor, compression and weighted solve of `samples` states: where the time goes."""
    model = load_robot(robot).model
    _, tau, use, states = problem(model, samples)
    spent: list[list[float]] = []
    base = base_parameters(model)
    for _ in range(rounds):
        stamps = [time.thread_time()]
        base = base_parameters(model)
        stamps.append(time.thread_time())
        Y = regressor_columns(model, base.layout, *states)
        stamps.append(time.thread_time())
        triangles = compress(Y, tau, use)
        stamps.append(time.thread_time())
        solve(triangles, len(base), "wls")
        stamps.append(time.thread_time())
        spent.append(list(np.diff(stamps)))
    parts = 1e3 * np.median(spent, axis=0)
    return {
        "robot": robot,
        "rows": int(model.n * samples),
        "columns": len(base),
        "reduction_ms": float(parts[0]),
        "regressor_ms": float(parts[1]),
        "compress_ms": float(parts[2]),
        "solve_ms": float(parts[3]),
        "total_ms": 1e3 * float(np.median(np.sum(spent, axis=1))),
    }

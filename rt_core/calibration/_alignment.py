"""Initial base, tool and fixed points of a calibration.

The nominal geometry gives the last frame `(R_i, f_i)` at each posture.  Alternately, the tool's offset is the mean of
the measured points in that frame, and the base the rigid motion that best maps the model's points onto the measured
ones (Kabsch 1976; Umeyama 1991).  Levenberg-Marquardt then finds the least-squares frames.
"""

import numpy as np
import scipy.linalg as la

from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.sample import Sample
from rt_core.types import BoolArray, FloatArray, IntArray

_ROUNDS = 30


def nearest_rotation(M: FloatArray) -> FloatArray:
    """Return the rotation (3, 3) nearest to a matrix (3, 3)."""
    U, _, V = la.svd(M)
    return np.asarray(U @ np.diag([1.0, 1.0, np.sign(la.det(U @ V))]) @ V)


def rigid_motion(points: FloatArray, onto: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least-squares rotation (3, 3) and translation (3,) that move `points` (N, 3) `onto` (N, 3)."""
    centre, target = points.mean(axis=0), onto.mean(axis=0)
    R = nearest_rotation((onto - target).T @ (points - centre))
    return R, target - R @ centre


def aligned(model: ErrorModel, sample: Sample) -> ErrorModel:
    """Return the model with approximate values of the frames that are parameters."""
    base, tool = model.belongs_to("base").size > 0, model.belongs_to("tool").size > 0
    nothing = np.zeros(model.size)
    bases = [model.frame(name, nothing) for name in model.base_names]
    R_tool, t_tool = model.frame("tool", nothing)
    bare = model.with_frame("base", np.eye(3), np.zeros(3)).with_frame("tool", np.eye(3), np.zeros(3))
    f, R = bare.predict(sample.q, nothing)
    at = np.zeros(len(sample), dtype=np.int64) if sample.station is None else sample.station
    rows = [np.flatnonzero(at == s) for s in range(len(bases))]
    for _ in range(_ROUNDS if base and tool else 1):
        if base:
            bases = [
                rigid_motion(f[own] + R[own] @ t_tool, sample.positions[own]) if own.size else here
                for own, here in zip(rows, bases, strict=True)
            ]
        if tool:
            seen = _in_base(bases, at, sample.positions) - f
            t_tool = np.einsum("nji,nj->i", R, seen) / len(sample)
    if tool and sample.width == 6:
        R_base = np.array([rotation for rotation, _ in bases])[at]
        R_tool = nearest_rotation(np.einsum("nji,njk->ik", R_base @ R, sample.rotations))
    if base:
        for name, where in zip(model.base_names, bases, strict=True):
            model = model.with_frame(name, *where)
    return model.with_frame("tool", R_tool, t_tool) if tool else model


def _in_base(bases: list[tuple[FloatArray, FloatArray]], at: IntArray, positions: FloatArray) -> FloatArray:
    """Return positions (N, 3), each measured in the frame of station `at` (N,), in the robot's base."""
    rotations, translations = (np.array(part)[at] for part in zip(*bases, strict=True))
    return np.asarray(np.einsum("nji,nj->ni", rotations, positions - translations))


def in_first_frame(model: ErrorModel, sample: Sample, x: FloatArray, residual: FloatArray) -> FloatArray:
    """Return residuals (N, 3) or (N, 6) along the axes of the first station's frame."""
    if sample.station is None:
        return residual
    base = np.array([model.frame(name, x)[0] for name in model.base_names])
    turn = base[0] @ base.transpose(0, 2, 1)
    parts = residual.reshape(len(residual), -1, 3)
    return np.asarray(np.einsum("nij,nkj->nki", turn[sample.station], parts).reshape(residual.shape))


def aligned_points(model: ErrorModel, sample: Sample) -> ErrorModel:
    """Return the model with approximate fixed points, and tool if it is a parameter.

    A ball in sockets: `f_i + R_i t = s_g` is linear in the tool's offset and the sockets.  Distances: with the nominal
    tool, `2 p_i'c - |c|^2 = |p_i|^2 - L_i^2` is linear in a centre and its square.
    """
    nothing = np.zeros(model.size)
    p, R = model.predict(sample.q, nothing)
    assert sample.point is not None
    places = np.zeros((model.points, 3))
    if sample.length is not None:
        for g in np.unique(sample.point):
            own = sample.point == g
            middle = p[own].mean(axis=0)
            shifted = p[own] - middle
            rows = np.hstack((2.0 * shifted, -np.ones((len(shifted), 1))))
            known = np.sum(shifted**2, axis=1) - sample.length[own] ** 2
            places[g] = middle + la.lstsq(rows, known, cond=1e-9, check_finite=False)[0][:3]
        return model.with_places(places)
    R_tool, t_tool = model.frame("tool", nothing)
    if model.belongs_to("tool").size:
        # `R` ends in the tool's axes, but its offset is along those of the last frame
        turns = R @ R_tool.T
        centred, around = turns.copy(), p.copy()
        for g in np.unique(sample.point):
            own = sample.point == g
            centred[own] -= turns[own].mean(axis=0)
            around[own] -= p[own].mean(axis=0)
        step = la.lstsq(centred.reshape(-1, 3), -around.ravel(), cond=1e-6, check_finite=False)[0]
        model = model.with_frame("tool", R_tool, t_tool + step)
        p = p + turns @ step
    for g in np.unique(sample.point):
        places[g] = p[sample.point == g].mean(axis=0)
    return model.with_places(places)


def tested_poses(sample: Sample, use: BoolArray) -> BoolArray:
    """Return the poses (N,) that test a fit of those in `use` (N,).

    A pose alone in a socket without fitted poses is no test: it is always at the mean.
    """
    tested = ~use
    if sample.point is None or sample.length is not None:
        return tested
    fitted = np.isin(sample.point, sample.point[use])
    return tested & (fitted | (np.bincount(sample.point)[sample.point] > 1))


def with_sockets(model: ErrorModel, sample: Sample, use: BoolArray, x: FloatArray) -> FloatArray:
    """Return errors `x` (P,) with each socket at the mean ball position of its fitted poses, `use` (N,), or of all."""
    if sample.point is None or sample.length is not None:
        return x
    p, _ = model.predict(sample.q, x, sample.load)
    x = x.copy()
    for g in range(model.points):
        own = sample.point == g
        fitted = own & use
        column = model.first_point + 3 * g
        mean = p[fitted if fitted.any() else own].mean(axis=0)
        x[column : column + 3] = mean - model.nominal[column : column + 3]
    return x


def leave_one_out(sample: Sample, use: BoolArray) -> FloatArray:
    """Return factors (N,) that turn residuals of `with_sockets` into distances from the mean of the *other* poses.

    A mean of n that includes the pose itself (not in `use`, (N,)) makes the residual too small by (n - 1) / n.
    """
    factor = np.ones(len(sample))
    if sample.point is None or sample.length is not None:
        return factor
    n = np.bincount(sample.point)[sample.point]
    own = ~np.isin(sample.point, sample.point[use]) & (n > 1)
    factor[own] = n[own] / (n[own] - 1.0)
    return factor

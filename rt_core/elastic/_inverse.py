"""Inverse regression of an elastic joint: of the deflection on the torque, instead of the torque on the deflection.

Errors of the torque leave the direct regression unbiased and bias the stiffness of the inverse one away from zero;
errors of the deflection (of encoders or gear) leave the inverse one unbiased and bias that of the direct one towards
zero.  The data do not show which errors dominate, so the truth lies between both (Frisch 1934).
"""

import numpy as np

from rt_core.elastic.problem import JointProblem
from rt_core.linear_algebra import lstsq
from rt_core.types import BoolArray, FloatArray

_ITERATIONS = 40
_SETTLED = 1e-9
_REACH = 3.0  # largest deflection of the inverted spring, as a multiple of the largest observed one
_GRID = 2001
_POLISH = 3


def spring_share(problem: JointProblem, x: FloatArray, f: FloatArray, J: FloatArray, spread: FloatArray) -> float:
    """Return the share of the spring in the sum of its torque and the residual (squared), beyond all other columns.

    `x` (p,) parameters, `f` (r, K) torques, `J` (r, p, K) their derivatives, `spread` (r,) rms residuals.
    """
    count = len(problem.terms.spring)
    scaled = J / spread[:, None, None]
    spring = np.einsum("rpk,p->rk", scaled[:, :count], x[:count]).ravel()
    alone = _beyond(spring, scaled[:, count:].transpose(0, 2, 1).reshape(spring.size, -1))
    left = float(np.sum(((problem.y - f) / spread[:, None]) ** 2))
    own = float(alone @ alone)
    return own / (own + left) if own + left > 0.0 else 0.0


def inverse_regression(problem: JointProblem, x: FloatArray, free: BoolArray, spread: FloatArray) -> FloatArray:
    """Return the parameters (p,) of least residual in the deflection, by Gauss-Newton from those of the direct fit.

    Parameters that are not `free` (p,) and velocity constants of friction stay fixed.  All NaN if the spring's torque
    does not increase with the deflection, or the iterations do not converge.
    """
    nothing = np.full(x.size, np.nan)
    names = problem.names
    count = len(problem.terms.spring)
    damping = slice(count, count + len(problem.terms.damping))
    weight = (1.0 / spread)[:, None]
    x = x.copy()
    free = free & np.array([name not in problem.terms.constants for name in names])
    for _ in range(_ITERATIONS):
        _, J, shown = problem.evaluate(x)
        friction = np.einsum("rpk,p->rk", J[:, damping], x[damping])
        implied = _deflection_of(problem, x, problem.y - friction, float(np.abs(shown).max()))
        if implied is None:
            return nothing
        columns = J / problem.slope(x, shown)[:, None, :]  # of lag and zero: how the shown deflection moves
        slope = problem.slope(x, implied)
        columns[:, 0] = implied / slope
        if "k2" in names:
            columns[:, 1] = implied**3 / slope
        columns[:, damping] = J[:, damping] / slope[:, None, :]
        W = (columns[:, free] * weight[:, :, None]).transpose(0, 2, 1).reshape(shown.size, -1)
        scale = np.linalg.norm(W, axis=0)
        scale = np.where(scale > 0.0, scale, 1.0)
        step = np.zeros(x.size)
        step[free] = lstsq(W / scale, -((shown - implied) * weight).ravel(), rcond=1e-9) / scale
        x = problem.within(x + step)
        if not np.isfinite(x).all():
            return nothing
        if float(np.linalg.norm(W @ step[free])) <= _SETTLED * float(np.linalg.norm(shown * weight)):
            return x
    return nothing


def _deflection_of(problem: JointProblem, x: FloatArray, torque: FloatArray, largest: float) -> FloatArray | None:
    """Return deflections (r, K) at torques (r, K), up to the maximum of a softening spring; None unless increasing."""
    k1, k2 = problem.get(x, "k1"), problem.get(x, "k2")
    if min(k1, k1 + 3.0 * k2 * largest**2) <= 0.0:
        return None
    if k2 == 0.0:
        return np.asarray(torque / k1)
    reach = _REACH * largest
    if k2 < 0.0:
        reach = min(reach, float(np.sqrt(k1 / (-3.0 * k2))) * 0.999)
    grid = np.linspace(-reach, reach, _GRID)
    d = np.interp(torque, k1 * grid + k2 * grid**3, grid)
    for _ in range(_POLISH):
        d = np.clip(d - (k1 * d + k2 * d**3 - torque) / problem.slope(x, d), -reach, reach)
    return np.asarray(d)


def _beyond(x: FloatArray, others: FloatArray) -> FloatArray:
    """Return the part of `x` (K,) outside the span of the columns of `others` (K, m)."""
    if others.shape[1] == 0:
        return x
    scale = np.linalg.norm(others, axis=0)
    unit = others / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(x - unit @ lstsq(unit, x, rcond=1e-9))

"""Least squares plus a weighted distance to the prior, minimised inside the set of consistent parameters.

    F = 1/2 |A phi - z|^2 + sum_b w_b D_b(phi)

is convex, and `D` is self-concordant: damped Newton steps converge from any point inside.  In the coordinates of
`rt_core.identification.physical.coordinates` a step is the least-squares problem
`[A T; sqrt(w)] e = [z - A phi; -sqrt(w) g]`, solved by QR without the normal matrix.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from rt_core.identification.physical.coordinates import Point, Reference
from rt_core.identification.physical.prior import ConsistencyError
from rt_core.types import FloatArray

_LIMIT = 300
_BOUNDARY = 0.95  # largest share of the way to the boundary
_ARMIJO = 1e-4
_SETTLED = 1e-9  # decrement relative to the value of the objective, far above the rounding of either
_NEWTON_REGION = 1e-2  # decrement relative to the weight where Newton's method converges quadratically
_MIN = 1e-10
_FIRST_WEIGHT = 1e4
_FALL = 0.2  # of the weight from one minimum to the next


@dataclass(frozen=True)
class Minimum:
    """The minimum, its value, and the triangle (P, P) whose square is the Hessian in the point's coordinates.

    With a very small weight the best bodies may be unbounded: then `converged` is False and the point is the last one.
    """

    point: Point
    value: float
    root: FloatArray
    iterations: int
    converged: bool


def objective(A: FloatArray, z: FloatArray, reference: Reference, weight: FloatArray, point: Point) -> float:
    """Return the value of `F` for rows `A` (r, P), `z` (r,) and weights (P,)."""
    e = z - A @ point.phi(reference)
    return 0.5 * float(e @ e) + float(weight @ point.penalties(reference))


def minimise(A: FloatArray, z: FloatArray, reference: Reference, weight: FloatArray, start: Point) -> Minimum:
    """Minimise `F` from a point inside; weights (P,) positive."""
    point = start
    value = objective(A, z, reference, weight, point)
    root_weight = np.sqrt(weight)
    P = reference.size
    settled = False
    for iteration in range(_LIMIT):
        local = A @ point.directions(reference)
        stacked = np.vstack((local, np.diag(root_weight)))
        right = np.concatenate((z - A @ point.phi(reference), -root_weight * point.gradient(reference)))
        triangle = la.qr(np.column_stack((stacked, right)), mode="r", check_finite=False)[0][:P]
        root = triangle[:, :P]
        step = la.solve_triangular(root, triangle[:, P], check_finite=False)
        decrement = float(triangle[:, P] @ triangle[:, P])  # twice the decrease of the quadratic model
        if settled:
            return Minimum(point, value, root, iteration, True)
        if not np.isfinite(decrement):
            return Minimum(point, value, root, iteration, False)
        # Close to the minimum a full step squares the error, and the objective is too coarse for a line search.
        settled = decrement <= min(_SETTLED * (1.0 + value), _NEWTON_REGION * float(weight.min()))
        length = min(1.0, _BOUNDARY * point.room(step))
        trial = point.moved(length * step, reference)
        reached = objective(A, z, reference, weight, trial)
        while not settled and reached > value - _ARMIJO * length * decrement:
            length *= 0.5
            if length < _MIN:
                return Minimum(point, value, root, iteration, False)
            trial = point.moved(length * step, reference)
            reached = objective(A, z, reference, weight, trial)
        point, value = trial, reached
    return Minimum(point, value, root, _LIMIT, False)


def descend(A: FloatArray, z: FloatArray, reference: Reference, weight: FloatArray) -> Minimum:
    """Minimise `F` from the prior, over falling weights, each minimum the start for the next.

    Raises `ConsistencyError` if Newton's method does not converge.
    """
    point = Point.at_prior(reference)
    above = _FIRST_WEIGHT
    while above > float(weight.min()):
        point = minimise(A, z, reference, np.maximum(weight, above), point).point
        above *= _FALL
    minimum = minimise(A, z, reference, weight, point)
    if not minimum.converged:
        raise ConsistencyError(
            f"the consistent fit did not converge in {_LIMIT} steps: give the prior more weight, and check units and "
            "noise"
        )
    return minimum

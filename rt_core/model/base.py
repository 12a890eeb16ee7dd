"""Base (minimal) parameters: the combinations of standard parameters that torque determines.

The regressor is stacked over random feasible states; columns that depend on earlier ones are regrouped into them
(Gautier 1991, "Numerical calculation of the base inertial parameters").  The result is `theta = mapping @ phi` with
`mapping = [I beta]` up to the order of columns, and `tau = Y[:, independent] @ theta`: the base regressor is a choice
of columns.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rt_core.linear_algebra import lstsq
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import CYCLIC, LAW_ARMATURE, LAW_LINK, REFERENCE_TEMPERATURE
from rt_core.model.inertia import transform_inertial
from rt_core.model.parameters import ParameterLayout, standard_layout
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray, IntArray

#: A column is dependent if less than this share of its length is outside the span of the earlier ones: about a third of
#: the angle between two axes, so that axes 0.17 deg apart count as parallel.  Angles rounded to four decimals leave
#: 4e-6, numerical noise 1e-15; the columns that arms have keep 0.06 and more.
TOLERANCE = 1e-3
#: A column shorter than this share of the longest one is zero.
DEAD = 1e-4
_COEFFICIENT_FLOOR = 1e-9  # regrouping coefficients below this are rounding
_PROBE_VELOCITY = 0.5  # velocity constants of friction in the comparison of columns: the rank must not depend on them
_PROBE_GRAVITY = (1.0, -2.0, -9.0)  # parallel to no axis of an arm
_PROBE_WARMTH = 40.0  # range of temperatures about the reference in the comparison [K]


@dataclass(frozen=True)
class BaseParameters:
    """The base parameters of a robot."""

    standard: ParameterLayout  # all standard columns
    independent: IntArray  # (p,) columns of `standard` that carry the base parameters, ascending
    mapping: FloatArray  # (p, P) `theta = mapping @ phi` from standard parameters `phi`
    smallest_kept: float  # relative length outside the span of earlier columns, of the weakest kept column
    largest_dropped: float  # likewise, of the strongest dropped column: the gap of the rank decision

    def __len__(self) -> int:
        return int(self.independent.size)

    @cached_property
    def layout(self) -> ParameterLayout:
        """Columns of the base regressor, named by their leading standard parameter."""
        return self.standard.take(self.independent)

    def with_shape(self, columns: FloatArray) -> "BaseParameters":
        """Return the same with the shapes `columns` (p, 3) of the base regressor."""
        shape = self.standard.shape.copy()
        shape[self.independent] = columns
        return replace(self, standard=replace(self.standard, shape=shape))

    @property
    def names(self) -> tuple[str, ...]:
        """Leading standard parameter of each base parameter."""
        return self.layout.names

    @cached_property
    def expressions(self) -> tuple[str, ...]:
        """Each base parameter as a readable combination of standard parameters."""
        return tuple(self._expression(k) for k in range(len(self)))

    def _expression(self, k: int) -> str:
        text = str(self.standard.names[self.independent[k]])
        for c in np.flatnonzero(self.mapping[k]):
            if c == self.independent[k]:
                continue
            value = self.mapping[k, c]
            size = "" if abs(abs(value) - 1.0) < 1e-6 else f"{abs(value):.6g}*"
            text += f" {'-' if value < 0 else '+'} {size}{self.standard.names[c]}"
        return text

    def theta(self, phi: FloatArray) -> FloatArray:
        """Return the base parameters (p,) of standard parameters `phi` (P,)."""
        return np.asarray(self.mapping @ phi)

    def phi(self, theta: FloatArray) -> FloatArray:
        """Return the sparsest standard parameters (P,) with the given base parameters.

        They give the same torque, but are not physically meaningful link by link.
        """
        out = np.zeros(len(self.standard))
        out[self.independent] = theta
        return out


def random_states(model: RobotModel, count: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `count` random states `q, dq, ddq` (count, n) within the position limits, with rates of order one."""
    rng = np.random.default_rng(seed)
    lower = np.array([max(j.lower, -np.pi) if j.kind == "revolute" else max(j.lower, -1.0) for j in model.joints])
    upper = np.array([min(j.upper, np.pi) if j.kind == "revolute" else min(j.upper, 1.0) for j in model.joints])
    empty = upper <= lower  # limits that lie outside the range above
    lower = np.where(empty, [j.lower for j in model.joints], lower)
    upper = np.where(empty, [j.upper for j in model.joints], upper)
    q = rng.uniform(lower, upper, (count, model.n))
    dq = rng.uniform(-2.0, 2.0, (count, model.n))
    ddq = rng.uniform(-4.0, 4.0, (count, model.n))
    return q, dq, ddq


def probe_regressor(model: RobotModel, layout: ParameterLayout, count: int, seed: int = 0) -> FloatArray:
    """Return the regressor (count, n, P) at random feasible states, which shows the structure of the model.

    Velocity constants of friction are set so that every term contributes, and loads and temperatures are random:
    columns that are dependent here are dependent in any motion.
    """
    states = random_states(model, count, seed)
    shape = layout.shape.copy()
    shape[np.isin(layout.law, model.friction.shaped), 0] = _PROBE_VELOCITY
    load = np.random.default_rng(seed + 1).standard_normal(states[0].shape)
    warmth = np.random.default_rng(seed + 2).uniform(-_PROBE_WARMTH, _PROBE_WARMTH, states[0].shape)
    temperature = REFERENCE_TEMPERATURE + warmth
    return regressor(model, replace(layout, shape=shape), *states, load=load, temperature=temperature)


def base_parameters(model: RobotModel, *, tolerance: float = TOLERANCE, seed: int = 0) -> BaseParameters:
    """Return the base parameters of `model` with all its joint effects.

    Columns that are zero in every state are dropped.  The order is friction and offset, link parameters from the base
    outwards, rotor inertias (so that one that is inseparable from a link's inertia is regrouped into it), and last the
    cyclic terms, which may look like gravity.
    """
    layout = standard_layout(model)
    total = len(layout)
    stacked = probe_regressor(model, layout, max(64, 4 * total // model.n), seed).reshape(-1, total)
    norms = np.linalg.norm(stacked, axis=0)
    alive = norms > DEAD * norms.max(initial=1.0)
    scaled = np.where(alive, stacked / np.where(alive, norms, 1.0), 0.0)
    kinds = [layout.law == LAW_LINK, layout.law == LAW_ARMATURE, np.isin(layout.law, CYCLIC)]
    rank_of_kind = np.select(kinds, (1, 2, 3), 0)
    order = [int(c) for c in np.lexsort((np.arange(total), rank_of_kind)) if alive[c]]

    span = np.empty((stacked.shape[0], total))
    kept: list[int] = []
    smallest_kept, largest_dropped = np.inf, 0.0
    for c in order:
        column = scaled[:, c].copy()
        for _ in range(2):  # twice makes it orthogonal to rounding
            column -= span[:, : len(kept)] @ (span[:, : len(kept)].T @ column)
        left = float(np.linalg.norm(column))
        if left > tolerance:
            span[:, len(kept)] = column / left
            kept.append(c)
            smallest_kept = min(smallest_kept, left)
        else:
            largest_dropped = max(largest_dropped, left)
    independent = np.array(sorted(kept), dtype=np.int64)
    dependent = np.array([c for c in order if c not in set(kept)], dtype=np.int64)
    mapping = np.zeros((independent.size, total))
    mapping[np.arange(independent.size), independent] = 1.0
    if dependent.size:
        beta = lstsq(scaled[:, independent], scaled[:, dependent])
        beta *= norms[dependent] / norms[independent][:, None]
        nearest = np.round(beta)
        beta = np.where(np.abs(beta - nearest) < _COEFFICIENT_FLOOR, nearest, beta)
        mapping[:, dependent] = beta
    return BaseParameters(layout, independent, mapping, smallest_kept, largest_dropped)


def needing_gravity(model: RobotModel, base: BaseParameters) -> tuple[str, ...]:
    """Return the names of base parameters that only gravity determines and that `base`, without gravity, lacks.

    Empty for an arm with gravity.
    """
    if model.gravity.any():
        return ()
    with_gravity = base_parameters(replace(model, gravity=np.array(_PROBE_GRAVITY)))
    return tuple(name for name in with_gravity.names if name not in base.names)


def link_torque(
    model: RobotModel, base: BaseParameters, theta: FloatArray, q: FloatArray, dq: FloatArray, ddq: FloatArray
) -> FloatArray:
    """Return the torque of the links (N, n) at states (N, n) for base parameters `theta` (p,).

    Includes rotor inertias that are inseparable from link inertias.
    """
    phi = base.phi(theta)
    inertial = np.zeros((model.n, 10))
    link = base.standard.is_link
    inertial.ravel()[base.standard.source[link]] = phi[link]
    return inverse_dynamics(model.geometry, model.gravity, inertial, q, dq, ddq)


def payload_columns(base: BaseParameters, model: RobotModel) -> FloatArray:
    """Return the derivative (p, 10) of the base parameters by the parameters of a payload about the flange frame."""
    link = np.flatnonzero(np.asarray(base.standard.is_link) & (base.standard.source // 10 == model.n - 1))
    link = link[np.argsort(base.standard.source[link])]
    moved = [transform_inertial(unit, model.tip_rotation, model.tip_translation) for unit in np.eye(10)]
    return np.asarray(base.mapping[:, link] @ np.stack(moved, axis=1))

"""Limits of a motion: relative excess on the grid of a search, and margins over the whole period.

Position, velocity and acceleration of a Fourier series are trigonometric polynomials; a bound of their values between
the samples of a grid is known (`Basis.overshoot`) and compared with the limit.  Torque and points of the arm are not:
their extremes are from a fine grid, refined near the largest samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rt_core.excitation._reversals import reversal_states, reversal_times
from rt_core.excitation._workspace_kernels import always_touching, workspace_shares_at
from rt_core.excitation.errors import ExcitationError
from rt_core.excitation.fourier import Basis, Motion, States
from rt_core.excitation.limits import Limits, Quantity
from rt_core.excitation.settings import SAME, ExcitationSettings
from rt_core.excitation.shapes import Box
from rt_core.excitation.unchecked import collision_gaps, coupled_motors, torque_gaps, unbounded_tip
from rt_core.excitation.workspace_regions import WorkspaceLimits
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_BREAKAWAY, SHAPED, SIGNED
from rt_core.model.parameters import standard_layout, standard_parameters
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

#: Samples of the fine grid per period of the highest harmonic.
FINE = 400
#: The fine grid is refined this many times where values are above this share of their range.
NEAR = 0.9
REFINED = 64
#: Factor on the torque of a search, for peaks between the samples of its coarse grid.
TORQUE_RESERVE = 1.02
#: A velocity `v` counts as slow by `1/(1 + (v/limit)^8)` in a search, and below the limit in the final check.
SLOW_POWER = 8
#: Default slow speed over the velocity limit.
SLOW_SPEED = 0.1
#: Samples evaluated together.
_TOGETHER = 6400
#: Called between the parts of a check; an exception ends the check.
Heartbeat: TypeAlias = Callable[[], None]
#: Speed [rad/s or m/s] at which signs are one and breakaway friction is complete.
_SLOW = 1e-9


@dataclass(frozen=True)
class Margin:
    """Distance of a motion from one of its limits.

    Attributes
    ----------
    where : str
        Name of the joint, of the region (`tip x` for one side of a box), of a pair of bodies, or `series`.
    quantity : str
        `lower`, `upper` (position), `velocity`, `acceleration`, `effort`, `slow time`, `inside`, `outside` (distance
        from the centre of a sphere), `distance` (of the axes of two bodies), or `frequency`.
    reached : float
        Extreme of the motion in SI units: a bound for position, velocity and acceleration, the largest sample for
        effort, regions and distances.
    allowed, limit : float
        Largest allowed extreme, and the limit of which that is a share.
    share : float
        Remaining share: of half the allowed range for positions, of the allowed value for others.  Negative if the
        limit is violated.
    assumed : bool
        The limit is assumed, because the robot description has none.
    """

    where: str
    quantity: str
    reached: float
    allowed: float
    limit: float
    share: float
    assumed: bool = False


class PriorTorque:
    """Joint torque of the prior model: links, rotors, friction and offsets as far as known.

    Friction that depends on temperature is that at the reference temperature.

    Attributes
    ----------
    turning : (m, n) float64
        Motor velocities by joint velocities, of all motors whose friction changes quickly at a reversal.
    peaked : bool
        Some friction peaks near standstill, between the samples of a coarse grid.
    slow : float
        Speed [rad/s or m/s] near that peak.
    """

    def __init__(self, model: RobotModel) -> None:
        if model.inertial is None:
            raise ExcitationError(f"robot '{model.name}' has no link parameters to know a torque from")
        # known rotors and offsets act, whether or not they are to be identified
        self._model = replace(model.at_reference_temperature, armature=True, offset=True)
        layout = standard_layout(self._model)
        phi = standard_parameters(self._model, layout)
        known = np.flatnonzero(~layout.is_link & (phi != 0.0))
        self._inertial = model.inertial
        self._layout = layout.take(known)
        self._phi = phi[known]
        quick = np.isin(self._layout.law, (*SIGNED, *SHAPED))  # at a reversal of a motor
        self.turning = np.unique(self._layout.motor[quick], axis=0)
        self.peaked = bool(np.isin(self._layout.law, LAW_BREAKAWAY).any())
        self.slow = max(_SLOW, 2.0 * model.friction.smoothing)
        self._out: FloatArray | None = None

    def __call__(self, states: States) -> FloatArray:
        """Return the torque (N, n) [N*m] or [N] at `states`."""
        links = inverse_dynamics(self._model.geometry, self._model.gravity, self._inertial, *states)
        if not self._phi.size:
            return links
        shape = (self._model.n, self._phi.size, states[0].shape[0])
        if self._out is None or self._out.shape != shape:
            self._out = np.zeros(shape)
        Y = regressor_columns(self._model, self._layout, *states, out=self._out, load=links)
        return np.asarray(links + (self._phi @ Y).T)


class Constraints:
    """Limits of motions of `model`."""

    def __init__(self, model: RobotModel, limits: Limits, settings: ExcitationSettings) -> None:
        self.model = model
        self.limits = limits
        self.settings = settings
        limited = bool(np.isfinite(limits.effort).any())
        self.torque = PriorTorque(model) if limited and model.inertial is not None else None
        self.workspace = WorkspaceLimits.of(
            model, settings.every_region, settings.bodies, settings.clearance_m, settings.pairs, settings.skip_pairs
        )
        given = settings.slow_velocity
        if given is not None and len(given) != model.n:
            raise ExcitationError(f"slow_velocity has {len(given)} values, robot '{model.name}' has {model.n} joints")
        self.slow_velocity = SLOW_SPEED * limits.whole["velocity"] if given is None else np.array(given)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What is not checked, in words."""
        found = []
        if self.torque is None:
            known = "its link parameters" if self.model.inertial is None else "an effort limit"
            found.append(f"torque: the robot description does not give {known}")
        else:
            free = [self.model.joints[i].name for i in np.flatnonzero(np.isinf(self.limits.effort))]
            if free:
                found.append(f"torque of {', '.join(free)}: the robot description does not give an effort limit")
            found += torque_gaps(self.model)
        found += coupled_motors(self.model)
        found += unbounded_tip(self.model, self.settings.every_region)
        found += collision_gaps(self.model, self.settings)
        return tuple(found)

    def check_bodies(self) -> None:
        """Check, before a search, that no bodies touch in every posture.

        Raises `ExcitationError` if some do; the message names them.
        """
        touching = always_touching(self.workspace, self.model, self.limits.lower, self.limits.upper)
        if touching:
            raise ExcitationError(
                f"these bodies are nearer than they may be however the arm stands: {', '.join(touching)}: make them "
                "smaller, mark what carries the arm as its base, or name them under skip_pairs, which leaves them out"
            )

    def excess(self, states: States, overshoot: float) -> float:
        """Return the sum of all relative excesses over the limits of `states` (N, n) on a grid of the period.

        Excesses are relative to half the allowed range for positions, to the allowed value for others; `overshoot` is
        the grid's `Basis.overshoot`.
        """
        q, dq, ddq = states
        limits = self.limits
        low, high = _between(q, overshoot)
        half = 0.5 * (limits.upper - limits.lower)
        total = _positive((limits.lower - low) / half) + _positive((high - limits.upper) / half)
        total += _positive(overshoot * np.abs(dq).max(axis=0) / limits.velocity - 1.0)
        total += _positive(overshoot * np.abs(ddq).max(axis=0) / limits.acceleration - 1.0)
        if self.torque is not None:
            peak = np.abs(self.torque(states)).max(axis=0)
            if self.torque.peaked:
                turns = reversal_states(states, self.torque.turning, self.torque.slow)
                peak = np.maximum(peak, np.abs(self.torque(turns)).max(axis=0, initial=0.0))
            total += _positive(TORQUE_RESERVE * peak / limits.effort - 1.0)
        if self.workspace.rows:
            total += _positive(workspace_shares_at(self.workspace, self.model, q).max(axis=1))
        least = self.settings.slow_share
        if least:
            slow = (1.0 / (1.0 + (dq / self.slow_velocity) ** SLOW_POWER)).mean(axis=0)
            total += _positive(1.0 - slow / least)
        return total

    def share_of_room(self, states: States, overshoot: float) -> FloatArray:
        """Return the largest factor (n,) on each joint's motion about its mean within position, velocity, acceleration.

        `states` are of a whole period; zero if the mean itself is outside.
        """
        q, dq, ddq = states
        limits = self.limits
        low, high = _between(q, overshoot)
        mean = q.mean(axis=0)
        tiny = np.finfo(np.float64).tiny
        room = np.minimum.reduce(
            [
                (limits.upper - mean) / np.maximum(high - mean, tiny),
                (mean - limits.lower) / np.maximum(mean - low, tiny),
                limits.velocity / np.maximum(overshoot * np.abs(dq).max(axis=0), tiny),
                limits.acceleration / np.maximum(overshoot * np.abs(ddq).max(axis=0), tiny),
            ]
        )
        return np.asarray(np.maximum(room, 0.0))

    def effort(self, series: Motion, heartbeat: Heartbeat | None = None) -> FloatArray | None:
        """Return the largest torque (n,) [N*m] or [N] over a period of `series`; None if none is known or limited."""
        if self.torque is None:
            return None
        basis = Basis.grid(FINE * series.harmonics, series.f0_hz, series.harmonics)
        turns = reversal_times(series, basis, self.torque.turning)
        return _extreme(series, basis, _size_of(self.torque), turns, heartbeat)

    def keeps_effort(self, series: Motion) -> bool:
        """Check that the torque of `effort` is allowed; True if it is not checked."""
        effort = self.effort(series)
        return effort is None or bool((effort <= self.limits.effort).all())

    def margins(self, series: Motion, heartbeat: Heartbeat | None = None) -> tuple[Margin, ...]:
        """Return the margin to every limit over a whole period; `heartbeat` is called in between."""
        basis = Basis.grid(FINE * series.harmonics, series.f0_hz, series.harmonics)
        q, dq, ddq = series.sample(basis.times)
        limits, whole = self.limits, self.limits.whole
        factor, added = series.between(basis)
        low, high = _between(q, factor)
        low, high = low - added[0], high + added[0]
        half = 0.5 * (limits.upper - limits.lower)
        rate = factor * np.abs(dq).max(axis=0) + added[1]
        change = factor * np.abs(ddq).max(axis=0) + added[2]
        effort = self.effort(series, heartbeat)
        found = []
        for i, joint in enumerate(self.model.joints):
            guess = {name: bool(flags[i]) for name, flags in limits.assumed.items()}
            name = joint.name
            for side, reached, left in (
                ("lower", low[i], low[i] - limits.lower[i]),
                ("upper", high[i], limits.upper[i] - high[i]),
            ):
                allowed = getattr(limits, side)[i]
                found.append(_margin(name, side, reached, allowed, whole[side][i], left / half[i], guess["position"]))
            rows: list[tuple[Quantity, FloatArray]] = [("velocity", rate), ("acceleration", change)]
            if effort is not None and np.isfinite(limits.effort[i]):
                rows.append(("effort", effort))
            for side, peak in rows:
                allowed = getattr(limits, side)[i]
                left = 1.0 - peak[i] / allowed
                found.append(_margin(name, side, peak[i], allowed, whole[side][i], left, guess[side]))
        if self.settings.slow_share:
            found += self._slow(dq)
        if self.workspace.rows:
            found += self._workspace_margins(series, basis, heartbeat)
        avoid = self.settings.f_avoid_hz
        if avoid is not None:
            top = series.harmonics * series.f0_hz
            left = 1.0 - top / avoid
            found.append(_margin("series", "frequency", top, avoid, avoid, left if abs(left) > SAME else 0.0))
        return tuple(found)

    def _slow(self, dq: FloatArray) -> list[Margin]:
        """Return the margins of the time below the slow speed, by linear interpolation between samples."""
        least = self.settings.slow_share
        found = []
        for joint, v, limit in zip(self.model.joints, dq.T, self.slow_velocity, strict=True):
            size = np.abs(v)
            following = np.roll(size, -1)
            low, high = np.minimum(size, following), np.maximum(size, following)
            part = (limit - low) / np.maximum(high - low, np.finfo(np.float64).tiny)
            share = float(np.clip(np.where(high <= limit, 1.0, part), 0.0, 1.0).mean())
            found.append(_margin(joint.name, "slow time", share, least, least, share / least - 1.0))
        return found

    def workspace_order(self) -> list[tuple[str, str]]:
        """Return `where` and `quantity` of the margin of each row of `workspace_shares_at`."""
        found: list[tuple[str, str]] = []
        for region in self.settings.every_region:
            if isinstance(region, Box):
                found += [(f"{region.name} {axis}", side) for side in ("lower", "upper") for axis in "xyz"]
            else:
                found.append((region.name, region.side))
        return found + [(name, "distance") for name in self.workspace.pair_names]

    def _workspace_margins(self, series: Motion, basis: Basis, heartbeat: Heartbeat | None) -> list[Margin]:
        """Return the margins of regions and pairs of bodies, each in its own unit."""
        beyond = _extreme(
            series, basis, lambda s: workspace_shares_at(self.workspace, self.model, s[0]).T, heartbeat=heartbeat
        )
        found, at = [], 0
        for region in self.settings.every_region:
            if isinstance(region, Box):
                for k, axis in enumerate("xyz"):
                    low, high = region.low[k], region.high[k]
                    half = 0.5 * (high - low)
                    below, above = beyond[at + k], beyond[at + 3 + k]
                    where = f"{region.name} {axis}"
                    found.append(_margin(where, "lower", low - half * below, low, low, -below))
                    found.append(_margin(where, "upper", high + half * above, high, high, -above))
                at += 6
            else:
                reached = region.radius * (1.0 + (beyond[at] if region.side == "inside" else -beyond[at]))
                found.append(_margin(region.name, region.side, reached, region.radius, region.radius, -beyond[at]))
                at += 1
        for name, reach in zip(self.workspace.pair_names, self.workspace.reach, strict=True):
            found.append(_margin(name, "distance", reach * (1.0 - beyond[at]), reach, reach, -beyond[at]))
            at += 1
        return found


def _between(q: FloatArray, overshoot: float) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds (n,) of positions sampled as `q` (N, n)."""
    low, high = q.min(axis=0), q.max(axis=0)
    middle, half = 0.5 * (low + high), 0.5 * overshoot * (high - low)
    return middle - half, middle + half


def _positive(excess: FloatArray) -> float:
    return float(np.maximum(excess, 0.0).sum())


def _margin(
    where: str, quantity: str, reached: float, allowed: float, limit: float, share: float, assumed: bool = False
) -> Margin:
    return Margin(where, quantity, float(reached), float(allowed), float(limit), float(share), assumed)


def _size_of(function: Callable[[States], FloatArray]) -> Callable[[States], FloatArray]:
    return lambda states: np.abs(function(states))


def _extreme(
    series: Motion, basis: Basis, function: Callable[[States], FloatArray], further: FloatArray | None = None,
    heartbeat: Heartbeat | None = None,
) -> FloatArray:  # fmt: skip
    """Return the maxima (m,) of `function`, states (N, n) to (N, m), over a period and at `further` times."""

    def values_at(times: FloatArray) -> FloatArray:
        if heartbeat is not None:
            heartbeat()
        return function(series.sample(times))

    values = np.concatenate([values_at(part) for part in _parts(basis.times)])
    peak, least = values.max(axis=0), values.min(axis=0)
    near = (values >= least + NEAR * (peak - least)).any(axis=1)
    near |= np.roll(near, 1) | np.roll(near, -1)
    step = 1.0 / (basis.times.size * series.f0_hz)
    times = (basis.times[near][:, None] + step * ((np.arange(REFINED) + 0.5) / REFINED - 0.5)).ravel()
    if further is not None:
        times = np.concatenate((times, further))
    for part in _parts(times):
        peak = np.maximum(peak, values_at(part).max(axis=0))
    return np.asarray(peak)


def _parts(times: FloatArray) -> list[FloatArray]:
    return np.array_split(times, max(1, times.size // _TOGETHER))

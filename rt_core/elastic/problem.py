"""Rows of an elastic joint as functions of its parameters, with derivatives.

Joint side, in the signs of `rt_core.elastic.rows`, with `s` the sign of the speed:

    motor    N*(Km*Ia - J_in*ddtheta_in) = T_k(d) + N*b_in*dtheta_in + |N|*b_inD*s
    sensor   T_out                       = T_k(d) - b_out*dtheta_out - b_outC*s
    coupled  mean of both                = T_k(d)        (Sun et al., first stage)

`both` has the first two, with `k1` and `k2` in common.  The link encoder's channel is late by `lag` against motor
encoder and torques, and `zero` is added to the measured deflection.  All parameters but these two are linear.

With all friction (Sun et al., eqs. 15 and 18) there is on the right also

    motor    + |N|*C1*tanh(|dtheta_in|/omega1)*s + N*C2*dtheta_in*exp(-|dtheta_in|/omega_s)
    sensor   - A1*sin theta_out - A2*cos theta_out

with `omega1` and `omega_s` on the motor side, which are not linear either.

Without viscous friction in the model, an estimated lag absorbs it: `lag - N^2*b_in/k` in the motor row, `lag + b_out/k`
in the sensor row, with the stiffness `k`.  That is an apparent lag, and each row has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rt_core.elastic.rows import MAX_LAG_S, ElasticPiece, ElasticRows
from rt_core.linear_algebra import lstsq
from rt_core.types import FloatArray

RowChoice = Literal["motor", "sensor", "coupled", "both"]
FrictionTerms = Literal["none", "coulomb", "viscous", "full"]

_LAGS = 21  # of the search: the residual is smooth in the lag, and the iterations refine it
_ZERO_REACH = 10.0  # largest distance of the zero from the mean deflection, in widths of their range
#: Velocity constants of the motor's friction, and the torques that they shape.
SHAPED = {"omega1": "C1", "omega_s": "C2"}
_FRICTION: dict[str, dict[FrictionTerms, tuple[str, ...]]] = {
    "motor": {"none": (), "coulomb": ("b_inD",), "viscous": ("b_in", "b_inD"), "full": ("b_in", "b_inD", "C1", "C2")},
    "sensor": {
        "none": (), "coulomb": ("b_outC",), "viscous": ("b_out", "b_outC"), "full": ("b_out", "b_outC", "A1", "A2"),
    },
}  # fmt: skip
#: Range of a velocity constant, as shares of the slowest and the fastest speed: below, its term equals Coulomb friction
#: or is zero (to 1e-4); above, it looks like viscous friction.
_BELOW = {"omega1": 0.217, "omega_s": 0.109}
_ABOVE = 3.0
#: Quantile of the speeds that counts as the slowest, and its least share of the fastest.
_SLOWEST, _SLOW_SHARE = 0.001, 0.001
#: Rms deflection [rad] that is rounding.
NO_DEFLECTION = 1e-11
#: Prefix of the names of lags that include viscous friction.
APPARENT_LAG = "apparent_lag"


@dataclass(frozen=True)
class Terms:
    """Terms of a fit."""

    rows: RowChoice
    # "viscous" is Coulomb and viscous friction; "full" adds friction that falls with speed on the motor's side, and
    # friction that depends on the link's angle on the other
    friction: FrictionTerms = "viscous"
    cubic: bool = True  # the spring has `k2`
    lag_s: float | None = None  # of the link encoder [s]; None to estimate it
    zero: float | None = None  # of the deflection [rad]; None to estimate it
    omega1: float | None = None  # velocity constant of friction "full", motor side [rad/s]; None to estimate it
    omega_s: float | None = None  # likewise

    @property
    def sides(self) -> tuple[str, ...]:
        """Names of the rows of each instant."""
        return ("motor", "sensor") if self.rows == "both" else (self.rows,)

    @property
    def spring(self) -> tuple[str, ...]:
        """Names of the spring's parameters."""
        return ("k1", "k2") if self.cubic else ("k1",)

    @property
    def damping(self) -> tuple[str, ...]:
        """Names of the friction parameters."""
        return tuple(name for side in _FRICTION if side in self.sides for name in _FRICTION[side][self.friction])

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the velocity constants that are estimated."""
        if self.friction != "full" or "motor" not in self.sides:
            return ()
        return tuple(name for name in SHAPED if getattr(self, name) is None)

    @property
    def lags(self) -> tuple[str, ...]:
        """Names of the estimated lags: one, or without viscous friction one for each row."""
        if self.lag_s is not None:
            return ()
        if self.friction in ("viscous", "full"):
            return ("lag",)
        return (APPARENT_LAG,) if len(self.sides) == 1 else tuple(f"{APPARENT_LAG}_{side}" for side in self.sides)

    def names(self, records: int) -> tuple[str, ...]:
        """Return the names of all parameters, with one zero for each of `records`."""
        zeros = () if self.zero is not None else tuple(f"zero_{i + 1}" for i in range(records))
        return (*self.spring, *self.damping, *self.constants, *self.lags, *(("zero",) if len(zeros) == 1 else zeros))


class JointProblem:
    """Rows of all recordings as functions of the parameters."""

    def __init__(self, records: Sequence[ElasticRows], terms: Terms) -> None:
        self.records, self.terms = records, terms
        self.names = terms.names(len(records))
        self.pieces: list[ElasticPiece] = [piece for record in records for piece in record.pieces]
        sizes = [piece.t.size for piece in self.pieces]
        self.piece = np.repeat(np.arange(len(sizes)), sizes)
        owner = [i for i, record in enumerate(records) for _ in record.pieces]
        self.record = np.repeat(np.array(owner, dtype=np.int64), sizes)
        self.motor = np.concatenate([piece.motor for piece in self.pieces])
        self.speed = np.concatenate([piece.speed for piece in self.pieces])
        self.sign = np.concatenate([piece.sign for piece in self.pieces])
        motor_torque = np.concatenate([piece.motor_torque for piece in self.pieces])
        torques = {"motor": motor_torque}
        if records[0].has_sensor:
            torques["sensor"] = np.concatenate(
                [piece.sensor_torque for piece in self.pieces if piece.sensor_torque is not None]
            )
            torques["coupled"] = 0.5 * (motor_torque + torques["sensor"])
        self.y = np.stack([torques[side] for side in terms.sides])  # (r, K)
        seen, _ = self.encoders(0.0)
        self.centre = np.array([-seen[self.record == i].mean() for i in range(len(records))])
        shown = seen + (self.centre[self.record] if terms.zero is None else terms.zero)
        self.widest = float(np.ptp(shown))
        self.deflects = float(np.sqrt(np.mean(shown**2))) > NO_DEFLECTION
        self.motor_speed = abs(records[0].drive.gear_ratio) * np.abs(self.speed)
        self.fastest = float(self.motor_speed.max())
        self.slowest = max(float(np.quantile(self.motor_speed, _SLOWEST)), _SLOW_SHARE * self.fastest)

    @property
    def lag_names(self) -> tuple[str, ...]:
        """Name of the lag of each row, estimated or not."""
        lags = self.terms.lags or ("lag",)
        return lags if len(lags) == len(self.terms.sides) else lags * len(self.terms.sides)

    @property
    def size(self) -> int:
        """Number of instants K."""
        return int(self.motor.size)

    def get(self, x: FloatArray, name: str, otherwise: float = 0.0) -> float:
        """Return the value of a parameter in `x` (p,), `otherwise` if it is not one."""
        return float(x[self.names.index(name)]) if name in self.names else otherwise

    def box(self, constant: str) -> tuple[float, float]:
        """Return the range of the search for a velocity constant [rad/s, motor side]."""
        return _BELOW[constant] * self.slowest, _ABOVE * self.fastest

    def constant(self, x: FloatArray, name: str) -> float:
        """Return the velocity constant at `x` (p,), estimated or given [rad/s, motor side]."""
        given = getattr(self.terms, name)
        return self.get(x, name) if given is None else float(given)

    def shape(self, name: str, omega: float) -> FloatArray:
        """Return the column (K,) of the torque that the velocity constant `name` shapes, at its value `omega`."""
        N = abs(self.records[0].drive.gear_ratio)
        if name == "omega1":
            # with the filtered sign: a reversal must not separate tanh from Coulomb friction
            return np.asarray(N * np.tanh(self.motor_speed / omega) * self.sign)
        return np.asarray(N**2 * self.speed * np.exp(-self.motor_speed / omega))

    def shape_slope(self, x: FloatArray, name: str) -> FloatArray:
        """Return the derivative (K,) of the motor's torque by the velocity constant `name`."""
        N, omega = abs(self.records[0].drive.gear_ratio), self.constant(x, name)
        ratio = self.motor_speed / omega
        if name == "omega1":
            tanh = np.tanh(ratio)
            return np.asarray(-self.get(x, "C1") * N * self.sign * ratio / omega * (1.0 - tanh**2))
        return np.asarray(self.get(x, "C2") * self.shape(name, omega) * ratio / omega)

    def zeros(self, x: FloatArray) -> FloatArray:
        """Return the zero of the deflection (K,) at each row."""
        if self.terms.zero is not None:
            return np.full(self.size, self.terms.zero)
        return np.asarray(x[len(self.names) - len(self.records) :][self.record])

    def encoders(self, lag: float) -> tuple[FloatArray, FloatArray]:
        """Return difference of the encoders and link speed, (K,) each, for a lag of the link's channel."""
        link = np.concatenate([piece.link(piece.t + lag) for piece in self.pieces])
        speed = np.concatenate([piece.link_speed(piece.t + lag) for piece in self.pieces])
        return self.motor - link, speed

    def linear(
        self, deflection: FloatArray, link_speed: FloatArray, link: FloatArray | None = None,
        omegas: tuple[float, ...] = (),
    ) -> FloatArray:  # fmt: skip
        """Return the columns (r, s + d, K) of spring and friction, in full if the link's angle (K,) is given."""
        N = self.records[0].drive.gear_ratio
        known = {
            ("motor", "b_in"): N**2 * self.speed, ("motor", "b_inD"): abs(N) * self.sign,
            ("sensor", "b_out"): -link_speed, ("sensor", "b_outC"): -self.sign,
        }  # fmt: skip
        if self.terms.friction == "full" and link is not None:
            known |= {("sensor", "A1"): -np.sin(link), ("sensor", "A2"): -np.cos(link)}
            shaped = zip(SHAPED.items(), omegas, strict=True)
            known |= {("motor", amplitude): self.shape(name, omega) for (name, amplitude), omega in shaped}
        nothing = np.zeros(self.size)
        spring = [deflection, deflection**3] if self.terms.cubic else [deflection]
        names = self.terms.damping
        columns = ([*spring, *(known.get((side, name), nothing) for name in names)] for side in self.terms.sides)
        return np.stack([np.stack(one) for one in columns])

    def slope(self, x: FloatArray, deflection: FloatArray) -> FloatArray:
        """Return the stiffness at a deflection, of the same shape."""
        return self.get(x, "k1") + 3.0 * self.get(x, "k2") * deflection**2

    def evaluate(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return torques (r, K), their derivatives (r, p, K), and the deflection of each row (r, K)."""
        zeros = self.zeros(x)
        omegas = tuple(self.constant(x, name) for name in SHAPED) if self.terms.friction == "full" else ()
        blocks, deflections = [], []
        shown: dict[float, tuple[FloatArray, FloatArray]] = {}
        for i, name in enumerate(self.lag_names):
            lag = self.get(x, name, self.terms.lag_s or 0.0)
            if lag not in shown:
                shown[lag] = self.encoders(lag)
            difference, link_speed = shown[lag]
            deflection = difference + zeros
            slope = self.slope(x, deflection)
            # the effect of the lag on the link's viscous friction is negligible
            more = [
                self.shape_slope(x, constant) if self.terms.sides[i] == "motor" else np.zeros(self.size)
                for constant in self.terms.constants
            ]
            more += [np.where(name == other, -slope * link_speed, 0.0) for other in self.terms.lags]
            if self.terms.zero is None:
                more += [np.where(self.record == k, slope, 0.0) for k in range(len(self.records))]
            linear = self.linear(deflection, link_speed, self.motor - difference, omegas)[i]
            blocks.append(np.concatenate((linear, np.stack(more))) if more else linear)
            deflections.append(deflection)
        columns = np.stack(blocks)
        count = len(self.terms.spring) + len(self.terms.damping)
        f = np.einsum("rpk,p->rk", columns[:, :count], x[:count])
        return f, columns, np.stack(deflections)

    def within(self, x: FloatArray) -> FloatArray:
        """Return the parameters with lag, zero and velocity constants clipped to their ranges."""
        x = x.copy()
        for name in self.terms.constants:
            k = self.names.index(name)
            x[k] = np.clip(x[k], *self.box(name))
        for name in self.terms.lags:
            k = self.names.index(name)
            x[k] = np.clip(x[k], -MAX_LAG_S, MAX_LAG_S)
        if self.terms.zero is None:
            reach = _ZERO_REACH * self.widest
            zeros = x[-len(self.records) :]
            zeros[:] = np.clip(zeros, self.centre - reach, self.centre + reach)
        return x

    def at_rest(self) -> FloatArray:
        """Return the parameters of a joint without deflection: all zero but the zeros of the deflection."""
        x = np.zeros(len(self.names))
        for name in self.terms.constants:
            x[self.names.index(name)] = float(np.sqrt(np.prod(self.box(name))))
        if self.terms.zero is None:
            x[-len(self.records) :] = self.centre
        return x

    def start(self) -> FloatArray:
        """Return the parameters at the lag of least residual; the zero is first fitted as an offset of torque."""
        terms = self.terms
        lags = np.linspace(-MAX_LAG_S, MAX_LAG_S, _LAGS) if terms.lag_s is None else np.array([terms.lag_s])
        constant = np.stack([self.record == i for i in range(len(self.records))]).astype(np.float64)
        shift = self.centre[self.record] if terms.zero is None else terms.zero
        weight = 1.0 / np.maximum(np.sqrt(np.mean(self.y**2, axis=1)), np.finfo(np.float64).tiny)
        target = (self.y * weight[:, None]).ravel()
        best, x = np.inf, np.zeros(len(self.names))
        for lag in lags:
            difference, link_speed = self.encoders(float(lag))
            columns = self.linear(difference + shift, link_speed)
            count = columns.shape[1]
            if terms.zero is None:
                shared = np.broadcast_to(constant, (len(columns), *constant.shape))
                columns = np.concatenate((columns, shared), axis=1)
            W = (columns * weight[:, None, None]).transpose(0, 2, 1).reshape(target.size, -1)
            scale = np.linalg.norm(W, axis=0)
            scale = np.where(scale > 0.0, scale, 1.0)
            found = lstsq(W / scale, target, rcond=1e-10)
            left = float(np.sum((target - (W / scale) @ found) ** 2))
            if left >= best:
                continue
            best, found = left, found / scale
            x[:count] = found[:count]
            for name in terms.lags:
                x[self.names.index(name)] = lag
            if terms.zero is None:
                k1 = found[0] if found[0] != 0.0 else np.inf
                x[-len(self.records) :] = self.centre + found[count:] / k1
        return self.within(x)

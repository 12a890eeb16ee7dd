"""Initial state of an online estimator: sizes, filter taps, limits, gains and prior."""

import numpy as np

from rt_core.model.base import BaseParameters, payload_columns, probe_regressor
from rt_core.model.robot import RobotModel
from rt_core.online import _state as m
from rt_core.online._pipeline import GUARD_PERIODS
from rt_core.online._settings import OnlineSettings
from rt_core.online._state import EstimatorState
from rt_core.online.filters import Sampling
from rt_core.online.monitors.residual_evidence import friction_columns
from rt_core.online.rls import noise
from rt_core.types import FloatArray

_START_EFFORTS = 10.0  # one standard deviation of the start value may mean this many times the effort limit
_DEFAULT_EFFORT = 100.0  # where the robot file states none [N*m or N]
_SETTLE_S = 10.0  # motion after which a joint's noise level is valid
_FLOOR_ROUND = 0.05  # share of the memory in which each row of the information floor is added once
_IMPOSSIBLE = 20.0  # velocity or torque beyond this many times a joint's limit is a sensor fault
_TOP_SPEED = 1e3  # where the robot file states no limit [rad/s or m/s]
_TOP_TORQUE = 1e9  # [N*m or N]
_SHORT_HZ = 20.0
_BRIDGED_MEMORY_S = 30.0


def initial_state(
    model: RobotModel, base: BaseParameters, settings: OnlineSettings, sampling: Sampling, prior: FloatArray
) -> tuple[EstimatorState, FloatArray]:
    """Return the state that starts from base parameters `prior` (p,), and the root (p,) of its information."""
    n, p, (rate_hz, has_dq, bank, parallel, factor) = model.n, len(base), sampling
    layout = base.layout
    terms = friction_columns(layout, n).shape[1]
    state = EstimatorState(n, p, sampling, terms, layout.has_temperature)
    state["geometry"][:] = model.geometry
    state["gravity"][:] = model.gravity
    state["motor"][:] = layout.motor
    state["shape"][:] = layout.shape
    state["payload"][:] = payload_columns(base, model)
    state["load_theta"][:] = prior  # the last batch model gives the load of load-dependent friction
    state.ints[m.HAS_LOAD] = int(layout.has_load)
    state["taps"][:] = (bank.smooth, bank.first, bank.slope if has_dq else bank.second)
    state["taps2"][:] = parallel
    state.ints[m.EDGE] = int(np.flatnonzero((bank.smooth != 0.0) | (bank.first != 0.0))[0])
    state["theta"][:] = prior
    state["min_velocity"][:] = _min_velocity(model, settings)
    speed = np.array([j.velocity for j in model.joints])
    state["top_velocity"][:] = np.where(np.isfinite(speed), _IMPOSSIBLE * speed, _TOP_SPEED)
    limit = np.array([j.effort for j in model.joints])
    state["top_torque"][:] = np.where(np.isfinite(limit), _IMPOSSIBLE * limit, _TOP_TORQUE)
    state.integers("law")[:] = layout.law
    state.integers("source")[:] = layout.source
    columns = probe_regressor(model, layout, 64)
    touches = np.abs(columns).max(axis=0).T > 0.0  # (p, n)
    state["touches"][:] = touches
    first = np.array([int(np.argmax(touches[:, j])) for j in range(n)])
    state.integers("first")[:n] = first
    state.integers("order")[:] = np.argsort(first, kind="stable")
    effort = np.array([j.effort if np.isfinite(j.effort) else _DEFAULT_EFFORT for j in model.joints])
    size = np.sqrt(((columns / effort[:, None]) ** 2).sum(axis=1).mean(axis=0))
    start = np.where(size > 0.0, size, 1.0) / _START_EFFORTS  # root of the information
    np.fill_diagonal(state["R"], start)
    updates_hz = rate_hz / factor
    inflation = max(1.0, theoretical_inflation(parallel, factor))
    s = state["scalars"]
    s[m.STEP] = 1.0 / rate_hz
    s[m.ROOT_SCALE] = 1.0
    s[m.MAX_GAP] = max(settings.max_gap_s or 0.25 / settings.cutoff_hz, 2.5 / rate_hz)
    s[m.LAMBDA] = np.exp(-1.0 / (settings.memory_s * updates_hz))
    s[m.ALPHA], s[m.BETA] = settings.alpha, settings.beta
    s[m.EXCESS_ON], s[m.EXCESS_OFF] = settings.excess_on, settings.excess_off
    s[m.A_INNOVATION] = 1.0 - np.exp(-1.0 / (settings.innovation_s * updates_hz))
    s[m.A_SIGMA] = 1.0 - np.exp(-1.0 / (noise.SIGMA_MEMORY_S * updates_hz))
    s[m.A_TORQUE] = 1.0 - np.exp(-1.0 / (noise.TORQUE_MEMORY_S * updates_hz))
    s[m.A_BLOCK] = 1.0 / noise.BLOCK_MEMORY
    s[m.INFLATION] = inflation
    short_every = max(1, round(updates_hz / _SHORT_HZ))
    s[m.A_POWER] = 1.0 - np.exp(-short_every / (settings.memory_s * updates_hz))
    s[m.LAST_MOTION] = -np.inf
    state.ints[m.GUARD] = min(round(GUARD_PERIODS * rate_hz / settings.cutoff_hz), bank.smooth.size // 2)
    state.ints[m.LAST_BRIDGED] = state.ints[m.LAST_LOST] = -bank.smooth.size
    s[m.A_BRIDGED] = 1.0 - np.exp(-1.0 / (_BRIDGED_MEMORY_S * rate_hz))
    state.ints[m.SHORT_EVERY] = short_every
    state.ints[m.FLOOR_STEP] = max(1, round(_FLOOR_ROUND * settings.memory_s * updates_hz / p))
    state.ints[m.FLOOR_EVERY] = state.ints[m.FLOOR_STEP] * p
    state.ints[m.SHORT_RENEWALS] = max(1, round(settings.excitation_s * updates_hz / short_every))
    state.ints[m.BLOCK_ROWS] = max(2, round(noise.BLOCK_S * updates_hz))
    s[m.SETTLE_ROWS] = _SETTLE_S * updates_hz
    state["inflation_sum"][:] = noise.BLOCK_PRIOR * inflation
    state["inflation_count"][:] = noise.BLOCK_PRIOR
    state["forgetting"][:] = s[m.LAMBDA]
    state["innovation"][:] = np.nan
    return state, start


def _min_velocity(model: RobotModel, settings: OnlineSettings) -> FloatArray:
    standstill = model.standstill_velocity
    given = settings.min_velocity
    if given is None:
        return standstill
    if len(given) != model.n:
        raise ValueError(f"min_velocity has {len(given)} values for {model.n} joints")
    return np.maximum(np.asarray(given, dtype=np.float64), standstill)


def theoretical_inflation(taps: FloatArray, factor: int) -> float:
    """Long-run over instantaneous variance of white torque noise at the update rate."""
    correlation = np.correlate(taps, taps, mode="full")
    centre = taps.size - 1
    sampled = correlation[centre % factor :: factor]
    return float(sampled.sum() / correlation[centre])

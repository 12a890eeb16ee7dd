"""The arrays of an online estimator that has seen nothing yet."""

from __future__ import annotations

import numpy as np

from rt_core.model.base import BaseParameters, payload_columns, probe_regressor
from rt_core.model.robot import RobotModel
from rt_core.online import _state as m
from rt_core.online._pipeline import GUARD_PERIODS
from rt_core.online._settings import OnlineSettings
from rt_core.online._state import Memory
from rt_core.online.filters import FilterBank
from rt_core.online.monitors.residual_evidence import friction_places
from rt_core.types import FloatArray

_START_EFFORTS = 10.0  # one standard deviation of the start value may mean this many times the effort limit
_DEFAULT_EFFORT = 100.0  # where the robot file states none [N*m or N]
_SETTLE_S = 10.0  # motion after which a joint's noise level is trusted
_LEAK_ROUND = 0.05  # share of the memory in which the leak takes each of its rows in turn, to be then reckoned anew
_IMPOSSIBLE = 20.0  # times its limits, and a joint's velocity or torque is a fault of the sensor
_TOP_SPEED = 1e3  # the same where the robot file states no limit [rad/s or m/s]
_TOP_TORQUE = 1e9  # [N*m or N]
_SIGMA_MEMORY_S = 30.0
_TORQUE_MEMORY_S = 1.0
_BLOCK_S = 1.0
_BLOCK_MEMORY = 100.0
_BLOCK_PRIOR = 5.0
_SHORT_HZ = 20.0
_BRIDGED_MEMORY_S = 30.0


def start_memory(
    model: RobotModel,
    base: BaseParameters,
    settings: OnlineSettings,
    rate_hz: float,
    has_dq: bool,
    bank: FilterBank,
    parallel: FloatArray,
    factor: int,
    prior: FloatArray,
) -> tuple[Memory, FloatArray]:
    """Memory that starts from base parameters `prior` (p,), and the root (p,) of the information it starts with.

    Every `factor`-th frame, of `rate_hz`, renews the parameters; `bank` and `parallel` are the filters.
    """
    n, p = model.n, len(base)
    layout = base.layout
    terms = friction_places(layout, n).shape[1]
    memory = Memory(n, p, has_dq, bank.smooth.size, parallel.size, factor, terms, layout.has_temperature)
    memory["geometry"][:] = model.geometry
    memory["gravity"][:] = model.gravity
    memory["motor"][:] = layout.motor
    memory["shape"][:] = layout.shape
    memory["payload"][:] = payload_columns(base, model)
    memory["load_theta"][:] = prior  # load-dependent friction takes its load from the last batch model
    memory.ints[m.HAS_LOAD] = int(layout.has_load)
    memory["taps"][:] = (bank.smooth, bank.first, bank.slope if has_dq else bank.second)
    memory["taps2"][:] = parallel
    memory.ints[m.EDGE] = int(np.flatnonzero((bank.smooth != 0.0) | (bank.first != 0.0))[0])
    memory["theta"][:] = prior
    memory["min_velocity"][:] = _min_velocity(model, settings)
    speed = np.array([j.velocity for j in model.joints])
    memory["top_velocity"][:] = np.where(np.isfinite(speed), _IMPOSSIBLE * speed, _TOP_SPEED)
    limit = np.array([j.effort for j in model.joints])
    memory["top_torque"][:] = np.where(np.isfinite(limit), _IMPOSSIBLE * limit, _TOP_TORQUE)
    memory.integers("law")[:] = layout.law
    memory.integers("source")[:] = layout.source
    columns = probe_regressor(model, layout, 64)
    touches = np.abs(columns).max(axis=0).T > 0.0  # (p, n)
    memory["touches"][:] = touches
    first = np.array([int(np.argmax(touches[:, j])) for j in range(n)])
    memory.integers("first")[:n] = first
    memory.integers("order")[:] = np.argsort(first, kind="stable")
    effort = np.array([j.effort if np.isfinite(j.effort) else _DEFAULT_EFFORT for j in model.joints])
    size = np.sqrt(((columns / effort[:, None]) ** 2).sum(axis=1).mean(axis=0))
    start = np.where(size > 0.0, size, 1.0) / _START_EFFORTS  # root of the information
    np.fill_diagonal(memory["R"], start)
    updates_hz = rate_hz / factor
    inflation = max(1.0, theoretical_inflation(parallel, factor))
    s = memory["scalars"]
    s[m.STEP] = 1.0 / rate_hz
    s[m.ROOT_SCALE] = 1.0
    s[m.MAX_GAP] = max(settings.max_gap_s or 0.25 / settings.cutoff_hz, 2.5 / rate_hz)
    s[m.LAMBDA] = np.exp(-1.0 / (settings.memory_s * updates_hz))
    s[m.ALPHA], s[m.BETA] = settings.alpha, settings.beta
    s[m.EXCESS_ON], s[m.EXCESS_OFF] = settings.excess_on, settings.excess_off
    s[m.A_INNOVATION] = 1.0 - np.exp(-1.0 / (settings.innovation_s * updates_hz))
    s[m.A_SIGMA] = 1.0 - np.exp(-1.0 / (_SIGMA_MEMORY_S * updates_hz))
    s[m.A_TORQUE] = 1.0 - np.exp(-1.0 / (_TORQUE_MEMORY_S * updates_hz))
    s[m.A_BLOCK] = 1.0 / _BLOCK_MEMORY
    s[m.INFLATION] = inflation
    short_every = max(1, round(updates_hz / _SHORT_HZ))
    s[m.A_POWER] = 1.0 - np.exp(-short_every / (settings.memory_s * updates_hz))
    s[m.LAST_MOTION] = -np.inf
    memory.ints[m.GUARD] = min(round(GUARD_PERIODS * rate_hz / settings.cutoff_hz), bank.smooth.size // 2)
    memory.ints[m.LAST_BRIDGED] = memory.ints[m.LAST_LOST] = -bank.smooth.size
    s[m.A_BRIDGED] = 1.0 - np.exp(-1.0 / (_BRIDGED_MEMORY_S * rate_hz))
    memory.ints[m.SHORT_EVERY] = short_every
    memory.ints[m.LEAK_STEP] = max(1, round(_LEAK_ROUND * settings.memory_s * updates_hz / p))
    memory.ints[m.LEAK_EVERY] = memory.ints[m.LEAK_STEP] * p
    memory.ints[m.SHORT_RENEWALS] = max(1, round(settings.excitation_s * updates_hz / short_every))
    memory.ints[m.BLOCK_ROWS] = max(2, round(_BLOCK_S * updates_hz))
    s[m.SETTLE_ROWS] = _SETTLE_S * updates_hz
    memory["inflation_sum"][:] = _BLOCK_PRIOR * inflation
    memory["inflation_count"][:] = _BLOCK_PRIOR
    memory["forgetting"][:] = s[m.LAMBDA]
    memory["innovation"][:] = np.nan
    return memory, start


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

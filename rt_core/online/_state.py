"""State of an online estimator: two flat arrays with named fields, because a jitted call pays for every array argument.

Fields are views at offsets listed at the head of the integer array.  The two arrays are the complete state.
"""

import numpy as np

from rt_core.jit import jit
from rt_core.model.regressor import BLOCK
from rt_core.online.filters import Sampling
from rt_core.types import FloatArray, IntArray

# Sizes and counters at the head of the integer array.
N, P, CHANNELS, LENGTH, LENGTH2, FACTOR, SLOTS, HAS_DQ = range(8)
FRAMES, ROWS, MASKED, REPEATED, GAPS, UPDATES, EDGE, BUFFERED = range(8, 16)
RING_AT, RING_COUNT, LANES, SAMPLES, GRID, SHORT_AT, SHORT_EVERY, BLOCK_ROWS = range(16, 24)
LAST_LANE, SHORT_AGE, SHORT_RENEWALS, FLOOR_SET, FLOOR_EVERY, WIDTH, FLOOR_STEP, HAS_LOAD = range(24, 32)
GUARD, LAST_BRIDGED, BRIDGED, LOSS, LAST_LOST, HAS_TEMPERATURE, TERMS = range(32, 39)
HEAD = 40

# Scalars, in the field "scalars".
STEP, ORIGIN, MAX_GAP, LAMBDA, ALPHA, BETA, EXCESS_ON, EXCESS_OFF = range(8)
A_INNOVATION, A_SIGMA, A_TORQUE, A_BLOCK, A_POWER, TIME, INFLATION, LAST_MOTION = range(8, 16)
SETTLE_ROWS, ROOT_SCALE, BRIDGED_SHARE, A_BRIDGED = 16, 17, 18, 19
SCALARS = 20

FIELDS = (
    "scalars", "geometry", "gravity", "motor", "touches", "taps", "taps2", "ring", "frame_t", "frame_x", "state",
    "links", "value", "weight", "slots", "R", "short", "theta", "D", "work", "step", "roots", "sigma_sum",
    "sigma_count", "sigma2", "inflation_sum", "inflation_count", "weight2", "innovation2", "innovation", "torque2",
    "torque_mean2", "moved", "forgetting", "excess", "block_sum", "block_count", "leak", "power", "min_velocity",
    "changed", "top_velocity", "top_torque", "shape", "load", "load_theta",
    "power_count", "bridged", "frame_lost", "active", "misfit", "misfit_count",
    "payload", "features", "evidence", "evidence_rows",
)  # fmt: skip
_PER_JOINT = (
    "sigma_sum", "sigma_count", "sigma2", "inflation_sum", "inflation_count", "weight2", "innovation2", "innovation",
    "torque2", "torque_mean2", "moved", "forgetting", "excess", "block_sum", "block_count", "min_velocity",
    "changed", "top_velocity", "top_torque", "misfit", "misfit_count", "evidence_rows",
)  # fmt: skip
INT_FIELDS = ("law", "source", "first", "order")
_FIELD = {name: HEAD + k for k, name in enumerate(FIELDS)}
_INT_FIELD = {name: HEAD + len(FIELDS) + k for k, name in enumerate(INT_FIELDS)}

(
    F_SCALARS, F_GEOMETRY, F_GRAVITY, F_MOTOR, F_TOUCHES, F_TAPS, F_TAPS2, F_RING, F_FRAME_T, F_FRAME_X,
    F_STATE, F_LINKS, F_VALUE, F_WEIGHT, F_SLOTS, F_R, F_SHORT, F_THETA, F_D, F_WORK, F_STEP, F_ROOTS,
    F_SIGMA_SUM, F_SIGMA_COUNT, F_SIGMA2, F_INFLATION_SUM, F_INFLATION_COUNT, F_WEIGHT2, F_INNOVATION2,
    F_INNOVATION, F_TORQUE2, F_TORQUE_MEAN2, F_MOVED, F_FORGETTING, F_EXCESS, F_BLOCK_SUM, F_BLOCK_COUNT,
    F_INFORMATION_FLOOR, F_POWER, F_MIN_VELOCITY, F_CHANGED, F_TOP_VELOCITY,
    F_TOP_TORQUE, F_SHAPE, F_LOAD, F_LOAD_THETA, F_POWER_COUNT, F_BRIDGED, F_FRAME_LOST,
    F_ACTIVE, F_RESIDUAL_POWER, F_RESIDUAL_POWER_COUNT, F_PAYLOAD, F_FEATURES, F_EVIDENCE, F_EVIDENCE_ROWS,
) = (_FIELD[name] for name in FIELDS)  # fmt: skip
I_LAW, I_SOURCE, I_FIRST, I_ORDER = (_INT_FIELD[name] for name in INT_FIELDS)

#: Numbers per turn of a vectorised and unrolled loop.
UNROLL = 16
#: Parameters of a payload: the first features in "evidence".
PAYLOAD = 10
#: Features of a row in "evidence" beside friction terms: payload, sensor gain, sensor offset, and the residual.
EXTRA = PAYLOAD + 3


def padded(p: int) -> int:
    """Return the length of rows with `p` parameters and a right-hand side, padded to a multiple of `UNROLL`."""
    return -(-(p + 1) // UNROLL) * UNROLL


def shapes(n: int, p: int, sampling: Sampling, terms: int, has_temperature: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the float fields."""
    width, length, length2 = padded(p), sampling.bank.smooth.size, sampling.parallel.size
    channels, slots = n * (2 + sampling.has_dq + has_temperature), -(-length2 // sampling.factor)
    per_joint: dict[str, tuple[int, ...]] = dict.fromkeys(_PER_JOINT, (n,))
    return per_joint | {
        "scalars": (SCALARS,),
        "geometry": (n, 37),
        "gravity": (3,),
        "motor": (p, n),
        "touches": (p, n),
        "taps": (3, length),
        "taps2": (length2,),
        "ring": (channels, 2 * length),
        "bridged": (length,),  # latest samples that replace a lost frame: 1 by time stamps, 2 by the count
        "frame_lost": (4,),  # whether frames were lost just before
        "frame_t": (4,),
        "frame_x": (5, channels),  # four frames and the one interpolated from them: q, tau, and dq, temperature if any
        "state": (4 + has_temperature, n, BLOCK),  # q, dq, ddq, tau, and kelvin above the reference temperature if used
        "links": (n, n, 10 * BLOCK),
        "shape": (p, 3),
        "load": (n, BLOCK),  # link torque at the joints, by "load_theta"
        "load_theta": (p,),
        "value": (BLOCK,),
        "weight": (n, BLOCK),
        "slots": (slots, n, p + 2),  # a row, its torque, the share of samples that moved
        "R": (p, width),  # root of the information, to be multiplied by the scalar ROOT_SCALE
        "short": (2, p, width),  # information of the last few seconds; its successor
        "theta": (p,),
        "D": (2, n + 1, width),
        "work": (3, width),
        "step": (width,),
        "roots": (width,),
        "leak": (p, p),  # root of the information floor: forgetting keeps at least this
        "power": (p,),
        "power_count": (p,),
        "active": (p,),  # the active model, NaN without one; "misfit" sums its squared residuals
        "payload": (p, PAYLOAD),  # base parameters of a payload's parameters
        "features": (EXTRA + terms,),
        "evidence": (n, EXTRA + terms, EXTRA + terms),  # products of features, summed
    }


class EstimatorState:
    """Both arrays of an estimator, with views of their fields by name."""

    def __init__(self, n: int, p: int, sampling: Sampling, terms: int, has_temperature: bool) -> None:
        sizes = shapes(n, p, sampling, terms, has_temperature)
        channels, slots = sizes["frame_x"][1], sizes["slots"][0]
        length, length2 = sampling.bank.smooth.size, sampling.parallel.size
        head = np.zeros(HEAD + len(FIELDS) + len(INT_FIELDS), dtype=np.int64)
        head[[N, P, CHANNELS, LENGTH, LENGTH2, FACTOR, SLOTS, HAS_DQ, WIDTH, TERMS]] = (
            n, p, channels, length, length2, sampling.factor, slots, sampling.has_dq, padded(p), terms,
        )  # fmt: skip
        head[HAS_TEMPERATURE] = has_temperature
        at = 0
        for name in FIELDS:
            head[_FIELD[name]] = at
            at += -(-int(np.prod(sizes[name])) // 8) * 8  # every field starts on a cache line
        self.floats: FloatArray = np.zeros(at)
        ints = {"law": p, "source": p, "first": n + 1, "order": n}
        at = head.size
        for name in INT_FIELDS:
            head[_INT_FIELD[name]] = at
            at += ints[name]
        self.ints: IntArray = np.zeros(at, dtype=np.int64)
        self.ints[: head.size] = head
        self._int_sizes = ints
        self._views: dict[str, FloatArray] = {}
        for name, shape in sizes.items():
            at = int(head[_FIELD[name]])
            self._views[name] = self.floats[at : at + int(np.prod(shape))].reshape(shape)

    def __getitem__(self, name: str) -> FloatArray:
        """Return a view of a float field."""
        return self._views[name]

    def integers(self, name: str) -> IntArray:
        """Return a view of an integer field."""
        at = int(self.ints[_INT_FIELD[name]])
        return self.ints[at : at + self._int_sizes[name]]


@jit
def vector(floats: FloatArray, ints: IntArray, name: int, size: int) -> FloatArray:
    """Return a view (size,) of the field `name`, in jitted code."""
    at = ints[name]
    return floats[at : at + size]


@jit
def matrix(floats: FloatArray, ints: IntArray, name: int, rows: int, columns: int) -> FloatArray:
    """Return a view (rows, columns) of the field `name`, in jitted code."""
    at = ints[name]
    return floats[at : at + rows * columns].reshape((rows, columns))

"""Detect a sudden rise of a joint's residual by a CUSUM on blocks with a given rate of false alarms.

The mean square of a block to the power 0.31 is nearly normal (a little below the cube root of Wilson and Hilferty 1931,
because correlated rows make the tail heavier than that of a chi-square variable).  Its mean, spread and correlation
with the previous block are learned from the joint's own blocks, and turn the next block into

    Q = normal deviate of a t-distributed variable, t = (y - expected)/(s*sqrt(1 + 1/N)), N - 1 degrees of freedom

(Quesenberry 1991, SPC Q charts for start-up processes: for independent normal blocks the Q are independent standard
normal variables, however few blocks were learned from).  A one-sided CUSUM (Page 1954) adds `Q - kappa`, at most
`SHARE` of the height for each block, so that an alarm takes at least three blocks, longer than a push.  The height
follows from the mean number of blocks between two false alarms, by a Markov chain (Brook, Evans 1972).
"""

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from rt_core.jit import jit
from rt_core.types import BoolArray, FloatArray

#: Power of a mean square that makes it nearly normal.
POWER = 0.31
#: Largest share of the height that one block adds.
SHARE = 0.35
#: Largest correlation of neighbours, and largest deviation of the previous block, that are used.
MAX_CORRELATED, USUAL = 0.5, 3.0
#: Delay in blocks before one is learned from, so that the begin of a change does not count as usual.
DELAY = 20
#: Reference values for which heights are computed, in standard deviations of a block.
KAPPAS = np.linspace(1.0, 2.5, 7)

_STATES = 120
_MIN = 0.5  # smallest height
#: Longest mean run: beyond it the chain is singular to rounding.
MAX_RUN = 1e12

# Columns of a joint's state.
COUNT, MEAN, VARIANCE, COVARIANCE, KAPPA, HEIGHT, CUSUM, RUN, WAITING = range(9)
WIDTH = 9 + DELAY


def run_length(kappa: float, height: float) -> float:
    """Return the mean number of standard normal blocks until the CUSUM with reference `kappa` reaches `height`."""
    width = 2.0 * height / (2 * _STATES - 1)
    centres = width * np.arange(_STATES)
    edge = centres[None, :] + 0.5 * width - centres[:, None]  # largest step from one state to another
    below = np.where(edge < SHARE * height, ndtr(edge + kappa), 1.0)
    moves = np.diff(below, axis=1, prepend=0.0)
    return float(np.linalg.solve(np.eye(_STATES) - moves, np.ones(_STATES))[0])


def cusum_height(kappa: float, blocks: float) -> float:
    """Return the height that is reached once in `blocks` blocks on average, or the smallest height if that is rarer.

    Raises
    ------
    ValueError
        If `blocks` is more than `MAX_RUN`.
    """
    if not blocks <= MAX_RUN:
        raise ValueError(f"one false alarm in {blocks:.3g} blocks cannot be worked out: at most {MAX_RUN:g}")

    def excess(height: float) -> float:
        return float(np.log(run_length(kappa, height)) - np.log(blocks))

    highest = _MIN
    while excess(highest) < 0.0:
        highest += 1.0
    return highest if highest == _MIN else float(brentq(excess, highest - 1.0, highest, xtol=1e-4))


@lru_cache
def _heights(blocks: float) -> tuple[float, ...]:
    return tuple(cusum_height(float(kappa), blocks) for kappa in KAPPAS)


@jit
def normal_deviate(t: float, dof: float) -> float:
    """Return the normal deviate of the same probability as `t` of Student's distribution.

    Hill 1970, Algorithm 395 of CACM; for 5 and more degrees of freedom.
    """
    a = dof - 0.5
    b = 48.0 * a * a
    y = a * np.log1p(t * t / dof)
    z = ((((-0.4 * y - 3.3) * y - 24.0) * y - 85.5) / (0.8 * y * y + 100.0 + b) + y + 3.0) / b + 1.0
    return float(np.copysign(z * np.sqrt(y), t))


@jit
def learn(row: FloatArray, y: float, after: float, memory: float) -> None:
    """Update a joint's level and spread with `y`, and their correlation with `y` and the block `after` it.

    All blocks have equal weight until there are `memory`.
    """
    row[COUNT] = min(row[COUNT] + 1.0, memory)
    gain = 1.0 / row[COUNT]
    delta = y - row[MEAN]
    row[MEAN] += gain * delta
    row[VARIANCE] = (1.0 - gain) * (row[VARIANCE] + gain * delta * delta)
    row[COVARIANCE] += gain * (delta * (after - row[MEAN]) - row[COVARIANCE])


@jit
def take_block(row: FloatArray, mean_square: float, limits: FloatArray, heights: FloatArray) -> bool:
    """Process a block of one joint; return True, and restart the sum, if the height is reached.

    `row` (WIDTH,) is the joint's state, `heights` (7,) are those of `KAPPAS`.  `limits` (3,) are the blocks before
    detection, those remembered, and the relative rise of `y` that does not count, within the range of `KAPPAS`.
    """
    need, memory, tolerated = limits
    y = mean_square**POWER
    alarm = False
    count = row[COUNT]
    if count >= need:
        dof = count - 1.0
        std = max(np.sqrt(row[VARIANCE] * count / dof), 1e-9 * row[MEAN] + 1e-300)
        if row[KAPPA] == 0.0:
            row[KAPPA] = min(max(tolerated * row[MEAN] / std, KAPPAS[0]), KAPPAS[-1])
            row[HEIGHT] = np.interp(row[KAPPA], KAPPAS, heights)
        correlation = min(max(row[COVARIANCE] / max(row[VARIANCE], 1e-300), 0.0), MAX_CORRELATED)
        before = row[WIDTH - DELAY + int(row[WAITING]) - 1] - row[MEAN] if row[WAITING] > 0.0 else 0.0
        expected = row[MEAN] + correlation * min(max(before, -USUAL * std), USUAL * std)
        spread = std * np.sqrt((1.0 - correlation * correlation) * (1.0 + 1.0 / count))
        q = normal_deviate((y - expected) / spread, dof)
        row[CUSUM] = max(0.0, row[CUSUM] + min(q - row[KAPPA], SHARE * row[HEIGHT]))
        row[RUN] = row[RUN] + 1.0 if row[CUSUM] > 0.0 else 0.0
        if row[CUSUM] >= row[HEIGHT]:
            alarm = True
            row[CUSUM] = 0.0
            row[WAITING] = 0.0  # the blocks before the alarm are not learned from
            return alarm
    waiting = int(row[WAITING])
    ring = row[WIDTH - DELAY :]
    if waiting == DELAY:
        learn(row, ring[0], ring[1], memory)
        for k in range(DELAY - 1):
            ring[k] = ring[k + 1]
        waiting -= 1
    ring[waiting] = y
    row[WAITING] = waiting + 1.0
    return alarm


@jit
def take_blocks(
    rows: FloatArray, mean_squares: FloatArray, limits: FloatArray, heights: FloatArray, alarms: BoolArray
) -> None:
    """Process `mean_squares` (K, n) of all joints, NaN where one did not move, into `alarms` (K, n)."""
    for k in range(mean_squares.shape[0]):
        for j in range(mean_squares.shape[1]):
            value = mean_squares[k, j]
            alarms[k, j] = not np.isnan(value) and take_block(rows[j], value, limits, heights)


class ResidualCusum:
    """CUSUMs of all joints.

    Parameters
    ----------
    n : int
        Joints.
    blocks : float
        Mean number of blocks between two false alarms of all joints together.
    need, memory : int
        Minimum and maximum number of blocks from which a joint's level is learned.
    excess : float
        Tolerated relative rise of the mean square, limited to 1 to 2.5 standard deviations of the blocks.
    """

    def __init__(self, n: int, blocks: float, need: int, memory: int, excess: float) -> None:
        self._limits = np.array([need, memory, (1.0 + excess) ** POWER - 1.0])
        self.heights = np.array(_heights(n * blocks))
        self.rows = np.zeros((n, WIDTH))
        self.take(np.full(n, np.nan))  # compiled now

    def take(self, mean_square: FloatArray) -> BoolArray:
        """Process the mean squares (n,) of a block, NaN of joints that did not move; return the alarms (n,)."""
        return np.asarray(self.take_all(mean_square[None])[0])

    def take_all(self, mean_squares: FloatArray) -> BoolArray:
        """Process successive blocks (K, n); return the alarms (K, n)."""
        alarms = np.zeros(mean_squares.shape, dtype=np.bool_)
        take_blocks(self.rows, mean_squares, self._limits, self.heights, alarms)
        return alarms

    @property
    def learned(self) -> BoolArray:
        """(n,) joints whose level is learned."""
        return np.asarray(self.rows[:, COUNT] >= self._limits[0])

    def restart(self) -> None:
        """Restart the sums; keep the levels."""
        self.rows[:, [CUSUM, RUN, WAITING]] = 0.0

    def forget(self) -> None:
        """Discard sums and levels."""
        self.rows[:] = 0.0

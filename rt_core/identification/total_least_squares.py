"""Total least squares: noise in the regressor as well as in the torque.

With `C_j` (p, p) the covariance of the noise in a row of joint `j`'s regressor, the rows of all joints, weighted with
`1 / s_j`, hold the expected noise Gram matrix `N = sum_j K_j C_j / s_j^2`; it is subtracted from the normal equations,

    (sum_j Y_j' Y_j / s_j^2 - N) theta = sum_j Y_j' tau_j / s_j^2

as in generalised total least squares (Van Huffel and Vandewalle 1989) with noise of known size: torque that is not
modelled does not pass for noise in the regressor.  Columns without noise, such as an offset, have zeros in `C_j` and
stay exact: mixed LS-TLS.  A covariance with the structure and filtering of the rows replaces a structured perturbation
row by row, and is as consistent.

Plain TLS diverges on poor data along directions that noise alone explains.  Here such directions are left at zero
(truncated TLS, Fierro et al. 1997), and their parameters are marked as not supported.
"""

import numpy as np
import scipy
import scipy.linalg as la

from rt_core.identification.least_squares import Solution, Stack, check_row_count, check_torque, compress
from rt_core.statistics import NORMAL_MAD
from rt_core.types import BoolArray, FloatArray

#: Least power of a direction with information, as a multiple of the noise in it.
MIN_POWER = 4.0
#: A parameter with more than this share, columns scaled to unit length, in free directions is undetermined.
FREE_SHARE = 0.1
_SMOOTHED = 51  # samples of the smoothing window between an encoder's counts
_TOLERANCE = 1e-6
_LIMIT = 5


def white_noise_level(x: FloatArray) -> FloatArray:
    """Estimate the standard deviations (n,) of white noise on smooth channels `x` (N, n) [unit of x].

    Uses third differences, which cancel motion and amplify noise by sqrt(20), and their median, which ignores jumps.
    Raises `ValueError` if there are fewer than 16 samples.
    """
    if x.shape[0] < 16:
        raise ValueError(f"only {x.shape[0]} samples: too few to tell noise from motion")
    return np.asarray(np.median(np.abs(np.diff(x, n=3, axis=0)), axis=0) / NORMAL_MAD / np.sqrt(20.0))


def quantum(x: FloatArray) -> float:
    """Return the step of the grid of the samples `x` (N,); zero if there is none coarser than their noise."""
    steps = np.abs(np.diff(x))
    moving = steps[steps > 0.0]
    if moving.size == 0:
        return 0.0
    least = float(moving.min())
    if np.median(np.abs(np.diff(x, n=3))) > 8.0 * least:
        return 0.0  # noise of many steps is white whatever the grid
    rounding = 64.0 * np.finfo(np.float64).eps * float(np.abs(x).max())
    counts = np.round(moving / least)
    on_grid = np.abs(moving - counts * least) <= rounding * (1.0 + counts)
    return float(moving.sum() / counts.sum()) if least > 4.0 * rounding and on_grid.all() else 0.0


def encoder_noise(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw noise (N, n) like that on channels `x` (N, n), to measure its effect on a recording.

    White noise of the channel's own level; where an encoder's counts show, the quantisation error along the same motion
    with another offset.  In fast motion that error lies above the pass band, and white noise of the same size would be
    far too much. Raises `ValueError` if there are fewer than 16 samples.
    """
    out = rng.standard_normal(x.shape) * white_noise_level(x)
    window = min(_SMOOTHED, 2 * ((x.shape[0] - 1) // 2) - 1)
    for j in range(x.shape[1]):
        step = quantum(x[:, j])
        if step > 0.0:
            path = scipy.signal.savgol_filter(x[:, j], window, 2) + step * rng.uniform()
            out[:, j] = step * np.round(path / step) - path
    return out


def noise_covariance(
    Y: FloatArray, disturbed: FloatArray, use: BoolArray, exact: BoolArray | None = None
) -> FloatArray:
    """Return the covariance (n, p, p) of the noise in a regressor row of each joint.

    Parameters
    ----------
    Y, disturbed : (n, p, K) float64
        Regressor rows of the recording, and of the same recording with as much noise again added to its position (and
        velocity) by `encoder_noise`, prepared in the same way.  Both without `min_velocity`: samples that are masked in
        one alone would pass for noise.
    use : (K, n) bool
        Rows in use of both.
    exact : (p,) bool, optional
        Columns without noise, such as those of Coulomb friction.

    Raises
    ------
    ValueError
        If shapes disagree.
    """
    n, p, count = Y.shape
    if disturbed.shape != Y.shape or use.shape != (count, n):
        raise ValueError(f"shapes disagree: Y {Y.shape}, disturbed {disturbed.shape}, use {use.shape}")
    out = np.zeros((n, p, p))
    for j in range(n):
        difference = (disturbed[j] - Y[j])[:, use[:, j]]
        if exact is not None:
            difference[exact] = 0.0
        out[j] = difference @ difference.T / max(difference.shape[1], 1)
    return out


def solve_total(Y: FloatArray, tau: FloatArray, use: BoolArray, noise: FloatArray) -> Solution:
    """Solve by total least squares from `Y` (n, p, K), `tau` (K, n) and the rows in use (K, n).

    Joints are weighted iteratively by their residual standard deviation, noise of the regressor included.
    `inverse_root` of the solution is that of the normal matrix less the noise in it.

    Parameters
    ----------
    noise : (n, p, p) float64
        Covariance of the noise in each joint's regressor rows (`noise_covariance`).

    Raises
    ------
    ValueError
        If shapes disagree, there are fewer rows than parameters, a row in use or the noise is not finite, a joint's
        torque is constant, or noise explains every direction of the regressor.
    """
    n, p, _ = Y.shape
    if noise.shape != (n, p, p) or not np.isfinite(noise).all():
        raise ValueError(f"noise covariance of shape {noise.shape}: it must be finite and ({n}, {p}, {p})")
    check_torque(tau, use)
    triangles = compress(Y, tau, use)
    check_row_count(triangles, p)
    stack = Stack(triangles, p)
    found = _solve(stack, noise, stack.decomposed(np.ones(n), 1).sigma, 2)
    for iteration in range(3, _LIMIT + 2):
        previous = found
        found = _solve(stack, noise, previous.sigma, iteration)
        if np.abs(found.theta - previous.theta).max() <= _TOLERANCE * np.abs(found.theta).max():
            break
    return found


def _solve(stack: Stack, noise: FloatArray, sigma: FloatArray, iteration: int) -> Solution:
    p = stack.p
    least = stack.decomposed(sigma, iteration)  # least squares, and a basis F in which the regressor is orthonormal
    gram = np.einsum("j,jab->ab", stack.count / sigma**2, noise)
    F = least.inverse_root
    # Directions in which the data do not clearly exceed the noise are left at zero.
    share, axes = la.eigh(F.T @ gram @ F)
    kept = share * MIN_POWER <= 1.0
    if not kept.any():
        raise ValueError("noise explains every direction of the regressor: the motion is too small for this noise")
    F = F @ axes[:, kept]
    rank = F.shape[1]
    triangle = stack.reduced(sigma)
    R, z = triangle[:p, :p], triangle[:p, p]
    normal = np.eye(rank) - F.T @ gram @ F
    theta = F @ la.solve(normal, F.T @ (R.T @ z), assume_a="pos")
    left, turned = la.eigh(normal)
    scale = np.linalg.norm(R, axis=0)
    safe = np.where(scale > 0.0, scale, 1.0)
    free = safe[:, None] * (np.eye(p) - F @ (F.T @ (R.T @ R))) / safe
    leverage = least.leverage * rank / max(least.rank, 1)
    supported = np.asarray((np.linalg.norm(free, axis=1) < FREE_SHARE) & (scale > 0.0))
    return Solution(
        theta, stack.spread(theta, leverage), sigma, F @ turned / np.sqrt(left), supported, rank,
        least.condition_number, least.scaled_condition_number, leverage, iteration,
    )  # fmt: skip

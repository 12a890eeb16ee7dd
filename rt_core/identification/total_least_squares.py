"""Total least squares: noise in the regressor as well as in the torque.

With `C_j` (p, p) the covariance of the noise in a row of joint `j`'s regressor, the rows of all joints, weighted with
`1 / s_j`, hold the expected noise Gram matrix `N = sum_j K_j C_j / s_j^2` (bordered with the torque's noise).  The
estimate is the direction in which data and noise differ least,

    (M - mu N) (theta, -1)' = 0,   M = sum_j [Y_j tau_j]' [Y_j tau_j] / s_j^2,   mu the smallest such number

(generalised total least squares, Van Huffel and Vandewalle 1989); one common factor of the noise need not be known.
Where the torque's noise is unknown, `mu` is 1 and the noise is subtracted from the normal equations: torque that is not
modelled then does not pass for noise in the regressor.  Columns without noise, such as an offset, have zeros in `C_j`
and stay exact: mixed LS-TLS.  A covariance with the structure and filtering of the rows replaces a structured
perturbation row by row, and is as consistent.

Plain TLS diverges on poor data along directions that noise alone explains.  Here such directions are left at the prior
(truncated TLS, Fierro et al. 1997), and their parameters are marked as not supported.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class TotalSolution:
    """Total-least-squares estimate."""

    solution: Solution  # `inverse_root` is that of the normal matrix less the noise in it
    noise_factor: float  # `mu`: ratio of the noise in the data to the given noise; 1 without `torque_std`


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


def solve_total(
    Y: FloatArray, tau: FloatArray, use: BoolArray, noise: FloatArray, torque_std: FloatArray | None = None,
    prior: FloatArray | None = None,
) -> TotalSolution:  # fmt: skip
    """Solve by total least squares from `Y` (n, p, K), `tau` (K, n) and the rows in use (K, n).

    Joints are weighted iteratively by their residual standard deviation, noise of the regressor included.

    Parameters
    ----------
    noise : (n, p, p) float64
        Covariance of the noise in each joint's regressor rows (`noise_covariance`).
    torque_std : (n,) float64, optional
        Standard deviation of the torque noise in the rows [N*m]; with it the noise may be off by one common factor.
        Without it, `noise` is taken as given and the residual as torque noise.
    prior : (p,) float64, optional
        Value of directions without data; zero by default.

    Raises
    ------
    ValueError
        If shapes disagree, there are fewer rows than parameters, a row in use or the noise is not finite, a joint's
        torque is constant, or noise explains every direction of the regressor.
    """
    n, p, _ = Y.shape
    if noise.shape != (n, p, p) or not np.isfinite(noise).all():
        raise ValueError(f"noise covariance of shape {noise.shape}: it must be finite and ({n}, {p}, {p})")
    if torque_std is not None and not (
        torque_std.shape == (n,) and np.isfinite(torque_std).all() and (torque_std > 0.0).all()
    ):
        raise ValueError(f"torque_std must hold {n} finite positive numbers")
    check_torque(tau, use)
    triangles = compress(Y, tau, use)
    check_row_count(triangles, p)
    start = np.zeros(p) if prior is None else np.asarray(prior, dtype=np.float64)
    bordered = np.zeros((n, p + 1, p + 1))
    bordered[:, :p, :p] = noise
    bordered[:, p, p] = 0.0 if torque_std is None else torque_std**2
    shift = np.eye(p + 1)  # rows are relative to the prior: their torque carries the regressor's noise with it
    shift[:p, p] = -start
    bordered = shift.T @ bordered @ shift
    stack = Stack(triangles, p, start)
    sigma = stack.decomposed(np.ones(n), 1).sigma
    found = _solve(stack, bordered, torque_std is not None, sigma, 2)
    for iteration in range(3, _LIMIT + 2):
        previous = found.solution
        found = _solve(stack, bordered, torque_std is not None, previous.sigma, iteration)
        moved = np.abs(found.solution.theta - previous.theta).max()
        if moved <= _TOLERANCE * np.abs(found.solution.theta).max():
            break
    return found


def _solve(stack: Stack, noise: FloatArray, relative: bool, sigma: FloatArray, iteration: int) -> TotalSolution:
    p = stack.p
    least = stack.decomposed(sigma, iteration)  # least squares, and a basis F in which the regressor is orthonormal
    gram = np.einsum("j,jab->ab", stack.count / sigma**2, noise)
    F = least.inverse_root
    # Directions in which the data do not clearly exceed the noise are left at the prior.
    share, axes = la.eigh(F.T @ gram[:p, :p] @ F)
    kept = share * MIN_POWER <= 1.0
    if not kept.any():
        raise ValueError("noise explains every direction of the regressor: the motion is too small for this noise")
    F, largest = F @ axes[:, kept], float(share[kept].max())
    rank = F.shape[1]
    # In this basis the data's Gram is [[1, b], [b', 1]] with the torque in units of its own length.
    triangle = stack.reduced(sigma)
    R, z = triangle[:p, :p], triangle[:p, p]
    power = float((triangle[:, p] ** 2).sum() + (stack.rest / sigma**2).sum())
    length = np.sqrt(max(power, np.finfo(np.float64).tiny))
    b = F.T @ (R.T @ z) / length
    basis = la.block_diag(F, np.array([[1.0 / length]]))
    disturbance = basis.T @ gram @ basis
    mu = 1.0
    if relative:
        data = np.eye(rank + 1)
        data[:rank, rank] = data[rank, :rank] = b
        # If the torque is explained to rounding, there is no noise to correct for.
        unexplained = 1.0 - float(b @ b)
        mu = 1.0 / float(la.eigvalsh(disturbance, data)[-1]) if unexplained > 1e-12 else 0.0
        if mu * largest > 1.0 - 1.0 / MIN_POWER:
            raise ValueError(
                f"the residuals ask for {mu:.3g} times the noise given, which would explain the motion itself: "
                "torque_std is too small, or the model leaves torque out; leave torque_std away"
            )
    normal = np.eye(rank) - mu * disturbance[:rank, :rank]
    step = F @ la.solve(normal, b - mu * disturbance[:rank, rank], assume_a="pos") * length
    left, turned = la.eigh(normal)
    scale = np.linalg.norm(R, axis=0)
    safe = np.where(scale > 0.0, scale, 1.0)
    free = safe[:, None] * (np.eye(p) - F @ (F.T @ (R.T @ R))) / safe
    leverage = least.leverage * rank / max(least.rank, 1)
    supported = np.asarray((np.linalg.norm(free, axis=1) < FREE_SHARE) & (scale > 0.0))
    solution = Solution(
        stack.prior + step, stack.spread(step, leverage), sigma, F @ turned / np.sqrt(left), supported, rank,
        least.condition_number, least.scaled_condition_number, leverage, iteration,
    )  # fmt: skip
    return TotalSolution(solution, mu)

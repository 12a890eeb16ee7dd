"""Discrete explanations of a bad fit: another gravity vector, another order or sign of channels.

Each alternative is fitted with parameters and joint weights of its own.  Alternatives are compared by the profile
likelihood of independent normal residuals, `sum_j n_j log sigma_j` with each residual counted for the channel that
recorded it; `left = exp` of its change per row is the geometric mean of the residual that remains.

Signs and orders of torque channels need no new rows, and gravity enters the regressor linearly, so both are compared
on Gram matrices.  Orders, signs and zeros of positions need another regressor each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

import numpy as np
import scipy.linalg as la

from rt_core.identification.diagnostics.row_filter import RowFilter
from rt_core.identification.preprocess import Signals, SignalSettings
from rt_core.identification.rows import Rows, build_rows
from rt_core.model.base import BaseParameters, base_parameters, link_torque
from rt_core.model.friction import LAW_LOAD
from rt_core.model.parameters import standard_parameters
from rt_core.model.regressor import regressor_columns
from rt_core.model.robot import RobotModel
from rt_core.types import BoolArray, FloatArray

STANDARD_GRAVITY = 9.80665
#: Blocks of time by which likelihoods are compared.
BLOCKS = 15
#: One gravity is taken for better than another if its likelihood is larger by this many deviations between the blocks:
#: Student's t with 14 degrees of freedom, one in a thousand where both are equally wrong, so at most one in two hundred
#: for the best of the five other axes (Bonferroni), and far less where the given one is right.
AXIS_BETTER = 3.8
_SAME_DIRECTION = 0.9  # cosine above which an axis is that of the robot file
_BY_FILE = "; its opposite fits as well: the robot file decides, by its links or else its gravity"
_ROW_LIMIT = 1500  # rows in a comparison; more do not change it
_SINGULAR = 1e-11  # of the Gram matrix with unit diagonal
_ROUNDS = 8
_CONFIRMED = 4  # position alternatives that are compared on filtered rows
_TOLERANCE = 1e-3
_STEPS = 12
_SETTLED = 1e-4
_MIN_SHARE = 1e-9
_ROUNDING = 1e-6  # of the torque: a residual below is what Gram matrices leave of none
_FAR = 10.0  # a gravity vector this many times the usual one is none,
_NONE = 0.05  # and one of this share of it has no sign
#: Sizes of the given one to start from, too: a clock that is off gives such.
_SIZES = (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)
_GENERAL = (1.0, -2.0, -9.0)  # parallel to no axis of an arm: with it all parameters that gravity can show


@dataclass(frozen=True)
class Alternative:
    """One explanation, `text` for people, with what it leaves.

    `left` is relative to the model as it is; `sigma` (n,) are the residual standard deviations of the joints; `z` is by
    how many deviations between blocks of time the likelihood is larger (Vuong 1989), NaN where it was not tested.
    """

    kind: str
    text: str
    left: float
    sigma: FloatArray
    z: float = np.nan


@dataclass(frozen=True)
class GravityFit:
    """Gravity as a free vector.

    Attributes
    ----------
    vector : (3,) float64
        With the least residual [m/s^2].
    left : float
        Residual with it, relative to the gravity of the robot file.
    sigma : (n,) float64
        Residual standard deviations with it.
    axis, axis_left, axis_z : (3,) float64, float, float
        The axis with the least residual other than the robot file's direction, what it leaves, and by how many standard
        deviations its likelihood is larger (Vuong 1989): Student's t, as the blocks of time scatter.
    free_z : float
        The same for `vector` against `axis`.
    sign, axis_sign : str
        Empty if the data tell `vector`, or `axis`, from its opposite by `AXIS_BETTER`; else that is given whose first
        moments agree with the robot file's links, or which is nearer its gravity, and this says so.
    """

    vector: FloatArray
    left: float
    sigma: FloatArray
    axis: FloatArray
    axis_left: float
    axis_z: float
    free_z: float
    sign: str
    axis_sign: str


_Tried = tuple[FloatArray, tuple[FloatArray, FloatArray, float]]  # a gravity vector and its fit


class Profile:
    """Gram matrices `[A b]` (P + 1, P + 1) of each joint, and the reweighted least-squares fit on them."""

    def __init__(self, counts: FloatArray, sigma: FloatArray) -> None:
        self.counts = counts
        self.live = counts > 0
        least = _MIN_SHARE * max(float(np.max(sigma, where=self.live, initial=0.0)), 1e-100)
        self.start = np.where(self.live, np.maximum(sigma, least), np.inf)

    def fit(self, grams: FloatArray, *, rounds: int = _ROUNDS) -> tuple[FloatArray, FloatArray, float]:
        """Return parameters (P,), standard deviations (n,) and `sum_j n_j log sigma_j` per row."""
        sigma = self.start
        x = np.zeros(grams.shape[1] - 1)
        for _ in range(rounds):
            total = np.tensordot(1.0 / sigma**2, grams, axes=1)
            x = solve_scaled(total[:-1, :-1], total[:-1, -1])
            e = np.append(-x, 1.0)
            new = np.sqrt(np.maximum(np.einsum("i,jik,k->j", e, grams, e), 0.0) / np.maximum(self.counts, 1.0))
            new = np.where(self.live, np.maximum(new, _MIN_SHARE * max(float(new.max()), 1e-100)), np.inf)
            settled = np.all(np.abs(new[self.live] / sigma[self.live] - 1.0) <= _TOLERANCE)
            sigma = new
            if settled:
                break
        n = self.counts[self.live]
        return x, sigma, float(np.sum(n * np.log(sigma[self.live])) / n.sum())


def solve_scaled(A: FloatArray, b: FloatArray) -> FloatArray:
    """Solve the symmetric system `A x = b`, its diagonal scaled to one, by its eigenvalues where it is singular."""
    size = np.sqrt(np.maximum(np.diag(A), 0.0))
    w = np.divide(1.0, size, out=np.zeros_like(size), where=size > 1e-150)
    scaled, right = A * np.outer(w, w), (b.T * w).T
    try:
        factor = np.linalg.cholesky(scaled + np.diag(w == 0.0))
        if np.diag(factor).min() ** 2 > _SINGULAR:
            return np.asarray((la.cho_solve((factor, True), right, check_finite=False).T * w).T)
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(scaled)
    kept = values > _SINGULAR * max(float(values[-1]), 1e-300)
    root = vectors[:, kept] / np.sqrt(values[kept])
    return np.asarray(((root @ (root.T @ right)).T * w).T)


def _level_of(squares: FloatArray, counts: FloatArray) -> float:
    """Return `sum_j n_j log rms` of the torques (n,) themselves per row: channels trade rows when they trade joints."""
    live = (counts > 0) & (squares > 0.0)
    n = counts[live]
    return float(np.sum(0.5 * n * np.log(squares[live] / n)) / max(counts.sum(), 1.0))


def fit_gravity(
    model: RobotModel, base: BaseParameters, theta: FloatArray, fitted: Rows, signals: Signals,
    settings: SignalSettings, sigma: FloatArray,
) -> GravityFit:  # fmt: skip
    """Fit gravity as a free vector together with all parameters, by variable projection (Golub and Pereyra 1973).

    Starts at the robot file's vector, others along it, none, and standard gravity along the six axes; `sigma` (n,) [N*m
    or N] are the residual standard deviations to start the weights from.  Friction that depends on load takes that of
    the fit `theta` (p,) to the rows `fitted`, whatever the gravity: torque that was fitted is much the same with any.
    """
    general = base_parameters(replace(model, gravity=np.array(_GENERAL)))
    P = len(general)

    every = max(1, fitted.t.size // _ROW_LIMIT)
    first, last = fitted.t[0], np.nextafter(fitted.t[-1], np.inf)
    loaded = signals
    if general.layout.has_load:
        pieces = tuple(replace(p, tau=link_torque(model, base, theta, p.q, p.dq, p.ddq)) for p in signals.pieces)
        loaded = replace(signals, pieces=pieces)

    def rows_of(gravity: FloatArray, source: Signals = loaded) -> Rows:
        turned = replace(model, gravity=gravity)
        return build_rows(turned, general, source, settings, slow=fitted.slow, every=every).select(first, last)

    still = rows_of(np.zeros(3))
    tau = still.tau if loaded is signals else rows_of(np.zeros(3), signals).tau
    axes = [rows_of(np.eye(3)[k]).Y - still.Y for k in range(3)]
    links = np.flatnonzero(np.asarray(general.layout.is_link))
    own = [np.arange(P), *(np.arange(P + k * links.size, P + (k + 1) * links.size) for k in range(3))]
    n, width = model.n, P + 3 * links.size + 1
    edges = np.linspace(0, still.t.size, min(BLOCKS, still.t.size) + 1).astype(np.int64)
    parts = np.zeros((edges.size - 1, n, width, width))
    for b, (a, e) in enumerate(pairwise(edges)):
        for j in range(n):
            use = a + np.flatnonzero(still.use[a:e, j])
            X = np.concatenate([still.Y[j][:, use], *(A[j][links][:, use] for A in axes), tau[None, use, j]])
            parts[b, j] = X @ X.T
    grams = parts.sum(axis=0)
    counts = np.array([still.use[a:e].sum(axis=0) for a, e in pairwise(edges)])
    profile = Profile(still.use.sum(axis=0).astype(np.float64), sigma)

    def mixed(G: FloatArray, g: FloatArray) -> FloatArray:
        """Return the columns (..., width, P + 1) of Gram matrices for `[Y(g) tau]`."""
        out = np.concatenate((G[..., :P], G[..., -1:]), axis=-1)
        for k in range(3):
            out[..., links] += g[k] * G[..., own[k + 1]]
        return out

    def at(g: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        half = np.swapaxes(mixed(grams, g), -1, -2)
        return profile.fit(mixed(half, g))

    def improved(g: FloatArray, x: FloatArray, s: FloatArray) -> FloatArray:
        """One step of Gauss-Newton, with the derivative by `g` projected on what the parameters do not take up."""
        G = np.tensordot(1.0 / s**2, grams, axes=1)
        D = np.zeros((width, 3))
        for k in range(3):
            D[own[k + 1], k] = x[links]
        GD = G @ D
        A = mixed(np.swapaxes(mixed(G, g), -1, -2), g)
        YD = mixed(GD.T, g).T  # [Y(g) tau]' D
        Z = solve_scaled(A[:P, :P], YD[:P])
        right = YD[-1] - YD[:P].T @ x  # D' r
        return np.asarray(g + solve_scaled(D.T @ GD - YD[:P].T @ Z, right))

    given = np.asarray(model.gravity, dtype=np.float64)
    size = float(np.linalg.norm(given)) or STANDARD_GRAVITY
    trials = [given, np.zeros(3), *(s * size * e for e in np.eye(3) for s in (1.0, -1.0))]
    trials += [factor * given for factor in _SIZES if given.any()]
    tried = [(g, at(g)) for g in trials]
    mine = tried[0][1]
    best = tried[0]

    def likelihood(g: FloatArray, found: tuple[FloatArray, FloatArray, float]) -> FloatArray:
        """Logarithm of the likelihood in each block of time, up to a constant."""
        e = np.append(found[0], -1.0)
        columns = mixed(np.swapaxes(mixed(parts, g), -1, -2), g)
        squares = np.einsum("i,bjik,k->bj", e, columns, e)
        s = np.where(told, found[1], 1.0)
        return np.asarray(-np.sum(np.where(told, counts * np.log(s) + 0.5 * squares / s**2, 0.0), axis=1))

    others = [item for item in tried[2:] if item[0] @ given < _SAME_DIRECTION * size * float(np.linalg.norm(given))]
    axis, other = min(others, key=lambda item: item[1][2])
    torque = np.sqrt(grams[:, -1, -1] / np.maximum(profile.counts, 1.0))
    told = profile.live & (np.minimum(mine[1], other[1]) > _ROUNDING * torque)

    def ahead(one: _Tried, two: _Tried) -> float:
        """Return by how many deviations between blocks the likelihood of `one` is larger than that of `two`."""
        return deviations(likelihood(*one) - likelihood(*two))

    filed = np.zeros(links.size)
    if model.inertial is not None:
        filed = general.theta(standard_parameters(model, general.standard))[links]

    def decided(one: _Tried) -> tuple[_Tried, bool]:
        """Return `one`, or its opposite where that fits alike and is on the robot file's side; whether data told."""
        g, (x, s, _) = one
        mirror = (-g, at(-g))
        better = ahead(one, mirror)
        if abs(better) >= AXIS_BETTER or np.linalg.norm(g) < _NONE * size:
            return (one if better >= 0.0 else mirror), True
        a, b = np.zeros(width), np.zeros(width)
        for k in range(3):
            a[own[k + 1]], b[own[k + 1]] = g[k] * x[links], g[k] * filed
        side = float(a @ np.tensordot(1.0 / s**2, grams, axes=1) @ b) if filed.any() else float(g @ given)
        return (mirror if side < 0.0 else one), False

    (axis, other), axis_told = decided((axis, other))
    axis_z = ahead((axis, other), tried[0])
    for start in (tried[0], min(tried[1:], key=lambda item: item[1][2])):
        g, found = start
        for _ in range(_STEPS):
            moved = improved(g, found[0], found[1])
            if not np.all(np.isfinite(moved)) or np.linalg.norm(moved) > _FAR * size:
                break
            after = at(moved)
            if not after[2] < found[2]:
                break
            settled = np.linalg.norm(moved - g) < _SETTLED * size
            g, found = moved, after
            if settled:
                break
        if found[2] < best[1][2]:
            best = (g, found)
    free_z = ahead(best, (axis, other))
    best, vector_told = decided(best)
    left, axis_left = (float(np.exp(level - mine[2])) for level in (best[1][2], other[2]))
    sign, axis_sign = ("" if told else _BY_FILE for told in (vector_told, axis_told))
    return GravityFit(best[0], left, best[1][1], axis, axis_left, axis_z, free_z, sign, axis_sign)


def torque_alternatives(
    model: RobotModel, rows: Rows, signals: Signals, rows_filter: RowFilter, sigma: FloatArray
) -> list[Alternative]:
    """Compare signs and orders of the torque channels, by steps that each turn one or swap two.

    The sign of all channels together cannot be told this way: all parameters change theirs.
    """
    n = model.n
    p = rows.Y.shape[1]
    # every torque channel through the mask of every joint
    grams = np.zeros((n, p + n, p + n))
    for j in range(n):
        use = rows.use[:, j]
        if use.any():
            tau = rows_filter.apply([piece.tau for piece in signals.pieces], masked_as=j)
            X = np.concatenate([rows.Y[j][:, use], tau[use].T])
            grams[j] = X @ X.T
    profile = Profile(rows.use.sum(axis=0).astype(np.float64), sigma)

    def at(order: Sequence[int], sign: Sequence[int]) -> tuple[FloatArray, float]:
        picked = np.empty((n, p + 1, p + 1))
        for j in range(n):
            index = np.append(np.arange(p), p + order[j])
            picked[j] = grams[j][np.ix_(index, index)]
            picked[j][-1, :-1] *= sign[j]
            picked[j][:-1, -1] *= sign[j]
        _, found, level = profile.fit(picked)
        return found, level - _level_of(picked[:, -1, -1], profile.counts)

    order, sign = list(range(n)), [1] * n
    _, own = at(order, sign)
    level, found = own, sigma
    for _ in range(2 * n):
        trials: list[tuple[list[int], list[int]]] = []
        for j in range(n):
            turned = sign.copy()
            turned[j] *= -1
            trials.append((order, turned))
        for i, j in combinations(range(n), 2):
            swapped = order.copy()
            swapped[i], swapped[j] = swapped[j], swapped[i]
            for si, sj in ((1, 1), (1, -1), (-1, 1)):
                signs = sign.copy()
                signs[i] *= si
                signs[j] *= sj
                trials.append((swapped, signs))
        results = [at(*trial) for trial in trials]
        k = int(np.argmin([result[1] for result in results]))
        if not results[k][1] < level - 1e-3:
            break
        (order, sign), (found, level) = trials[k], results[k]
    if order == list(range(n)) and len(set(sign)) == 1:
        return []
    if sign.count(-1) > sign.count(1):
        sign = [-s for s in sign]
    names = [joint.name for joint in model.joints]
    turned_names = [names[j] for j in range(n) if sign[j] < 0]
    parts = []
    if order != list(range(n)):
        moved = [f"{names[j]} from the column of {names[order[j]]}" for j in range(n) if order[j] != j]
        parts.append("the torque channels in another order (" + ", ".join(moved) + ")")
    if turned_names:
        parts.append(f"the torque of {', '.join(turned_names)} with the opposite sign")
    return [Alternative("torque_channels", " and ".join(parts), float(np.exp(level - own)), found)]


def position_alternatives(
    model: RobotModel, base: BaseParameters, rows: Rows, signals: Signals, settings: SignalSettings, sigma: FloatArray
) -> list[Alternative]:
    """Compare orders, signs and zeros of the position channels, alone and together with their torque, best first.

    A first comparison takes the regressor at the times of the rows, without their filter; it leaves out rows in which a
    joint stands.  The best few are compared again on filtered rows.
    """
    n = model.n
    every = max(1, rows.t.size // _ROW_LIMIT)
    full = np.flatnonzero(rows.use.all(axis=1))
    if full.size <= len(base):
        return []
    keep = full[np.unique(np.linspace(0, full.size - 1, min(_ROW_LIMIT, full.size)).astype(np.int64))]
    q, dq, ddq, tau = rows.q[keep], rows.dq[keep], rows.ddq[keep], rows.tau[keep]
    temperature = None if rows.temperature is None else rows.temperature[keep]
    layout = base.layout
    if layout.has_load:
        layout = layout.take(np.flatnonzero(layout.law != LAW_LOAD))

    def rough(trial: _PositionTrial) -> float:
        Y = regressor_columns(
            model, layout, q[:, trial.order] * trial.sign + trial.zero, dq[:, trial.order] * trial.sign,
            ddq[:, trial.order] * trial.sign, temperature=temperature,
        )  # fmt: skip
        target = tau[:, trial.order] * trial.sign if trial.torque else tau
        parts, counts = _grams(Y, target, np.ones(target.shape, dtype=bool), 1)
        return float(_BlockLikelihood(parts, counts, sigma).mean)

    def exact(trial: _PositionTrial) -> _BlockLikelihood:
        pieces = []
        for piece in signals.pieces:
            q, dq, ddq, tau = (x[:, trial.order] * trial.sign for x in (piece.q, piece.dq, piece.ddq, piece.tau))
            pieces.append(replace(piece, q=q + trial.zero, dq=dq, ddq=ddq, tau=tau if trial.torque else piece.tau))
        moved = replace(signals, pieces=tuple(pieces))
        built = build_rows(model, base, moved, settings, slow=rows.slow, every=every).select(*signals.part)
        return _BlockLikelihood(*_grams(built.Y, built.tau, built.use, BLOCKS), sigma)

    straight = list(range(n))
    own = exact(_PositionTrial(straight, np.ones(n), np.zeros(n), False, ""))
    found: list[Alternative] = []
    for trial in sorted(_position_trials(model), key=rough)[:_CONFIRMED]:
        tried = exact(trial)
        spread = np.empty(n)
        spread[np.asarray(trial.order) if trial.torque else np.arange(n)] = tried.sigma
        gain = own.blocks - tried.blocks
        found.append(
            Alternative("positions", trial.text, float(np.exp(tried.mean - own.mean)), spread, deviations(gain))
        )
    return sorted(found, key=lambda a: a.left)


def deviations(gain: FloatArray) -> float:
    """Return the mean of what blocks of time gain over its standard deviation: Student's t where it is none."""
    scatter = float(gain.std(ddof=1)) / np.sqrt(gain.size) if gain.size > 1 else np.inf
    return float(gain.mean()) / scatter if scatter > 0.0 else 0.0


def _grams(Y: FloatArray, target: FloatArray, use: BoolArray, blocks: int) -> tuple[FloatArray, FloatArray]:
    """Return Gram matrices of `[Y target]` (B, n, p + 1, p + 1) in blocks of time, and the rows in each (B, n)."""
    edges = np.linspace(0, len(target), min(blocks, len(target)) + 1).astype(np.int64)
    n, width = target.shape[1], Y.shape[1] + 1
    parts = np.empty((edges.size - 1, n, width, width))
    for b, (first, last) in enumerate(pairwise(edges)):
        for j in range(n):
            X = np.concatenate((Y[j, :, first:last], target[None, first:last, j]))[:, use[first:last, j]]
            parts[b, j] = X @ X.T
    return parts, np.array([use[first:last].sum(axis=0) for first, last in pairwise(edges)], dtype=np.float64)


class _BlockLikelihood:
    """Fit to Gram matrices of blocks, and its negative logarithmic likelihood per row relative to that of the torque.

    `blocks` (B,) is that of each block, `mean` that of all, `sigma` (n,) the residual standard deviations.
    """

    def __init__(self, parts: FloatArray, counts: FloatArray, sigma: FloatArray) -> None:
        grams, rows = parts.sum(axis=0), counts.sum(axis=0)
        x, self.sigma, level = Profile(rows, sigma).fit(grams)
        self.mean = level - _level_of(grams[:, -1, -1], rows)
        e = np.append(-x, 1.0)
        live = (rows > 0) & (grams[:, -1, -1] > 0.0)
        size = np.sqrt(grams[live, -1, -1] / rows[live])
        squares = np.einsum("i,bjik,k->bj", e, parts[:, live], e)
        n = counts[:, live]
        each = n * np.log(self.sigma[live] / size) + 0.5 * (squares / self.sigma[live] ** 2 - n)
        self.blocks = each.sum(axis=1) / np.maximum(n.sum(axis=1), 1.0)


@dataclass(frozen=True)
class _PositionTrial:
    """The recorded column, its sign and its zero for each joint's position, and whether its torque follows."""

    order: list[int]
    sign: FloatArray
    zero: FloatArray
    torque: bool
    text: str


def _position_trials(model: RobotModel) -> Iterator[_PositionTrial]:
    names = [joint.name for joint in model.joints]
    n = len(names)
    straight = list(range(n))
    changes: list[tuple[list[int], FloatArray, str]] = []
    alphabetical = sorted(straight, key=lambda j: names[j])
    columns = [alphabetical.index(j) for j in straight]
    if columns != straight:  # joint states are often recorded so
        changes.append((columns, np.ones(n), "in the alphabetical order of the joints' names"))
    if n > 2:
        changes.append((straight[::-1], np.ones(n), "in reverse order"))
    for i, j in combinations(straight, 2):
        order = straight.copy()
        order[i], order[j] = j, i
        changes.append((order, np.ones(n), f"of {names[i]} and {names[j]} exchanged"))
    for j in straight:
        sign = np.ones(n)
        sign[j] = -1.0
        changes.append((straight, sign, f"of {names[j]} with the opposite sign"))
    for order, sign, text in changes:
        for torque, what in ((False, "positions"), (True, "positions and torques")):
            yield _PositionTrial(order, sign, np.zeros(n), torque, f"the {what} {text}")
    for j, turns in product(straight, (1, 2, 3)):  # as between the zero of DH and the maker's
        if model.joints[j].kind == "revolute":
            zero = np.where(np.arange(n) == j, turns * np.pi / 2.0, 0.0)
            text = f"the positions of {names[j]} " + ("plus 90 deg", "plus 180 deg", "minus 90 deg")[turns - 1]
            yield _PositionTrial(
                straight, np.ones(n), zero, False, f"the positions of {names[j]} plus {90 * turns} deg"
            )

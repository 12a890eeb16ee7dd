"""Diagnosis of a fit: what is wrong with the data or the robot file, as far as the recording can tell.

First the small errors (`added_variables`), then, where the fit is bad, the discrete ones (`alternatives`).  A cause is
named only if it leaves little of the residual; otherwise the times and joints of the largest residuals are all that can
be said.  Significant errors that are not named widen the covariance by the change that they would make.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rt_core.identification.diagnostics.added_variables import (
    DELAYS,
    IDENTIFIABLE,
    AddedVariable,
    AddedVariableTest,
    Direction,
    corrected,
    directions,
    tilted,
)
from rt_core.identification.diagnostics.alternatives import (
    AXIS_BETTER,
    STANDARD_GRAVITY,
    Alternative,
    GravityFit,
    fit_gravity,
    position_alternatives,
    torque_alternatives,
)
from rt_core.identification.diagnostics.forms import FORMS, forms, reversals
from rt_core.identification.diagnostics.intervals import BLOCKS
from rt_core.identification.diagnostics.noise import at_noise, row_noise
from rt_core.identification.diagnostics.row_filter import RowFilter
from rt_core.identification.least_squares import compress, solve
from rt_core.identification.preprocess import DataError, Signals, SignalSettings
from rt_core.identification.rows import Rows, build_rows
from rt_core.model.base import BaseParameters, link_torque
from rt_core.model.dynamics import inverse_dynamics
from rt_core.model.friction import LAW_LOAD, REFERENCE_TEMPERATURE
from rt_core.model.regressor import regressor
from rt_core.model.robot import RobotModel
from rt_core.types import FloatArray

# Rates are those of `benchmarks/diagnosis_rates.py` on random arms and motions, decision record 45.

#: A small error counts as there above this many standard deviations: 4e-4 of Student's t with 29 degrees of freedom,
#: for the two numbers of a tilt 2e-3 of Hotelling's T, so of the twenty tests of a recording one in a hundred.
#: Measured: 4 of 6270 tests of clean recordings.
SIGNIFICANT = 4.0
#: It is named above this many (2e-6, for a tilt 1e-5, of any in a recording 5e-5; measured 0 of 6270) ...
CERTAIN = 6.0
#: ... if it leaves at most this share of the residual, or all joints come down to their noise.  Where the error is one
#: without a name, a false one was given in 0 of 40 (friction that falls with speed) and 8 of 140 (gears that yield) ...
SMALL_LEFT = 0.8
#: ... and leaves less than every error of another kind by this much.
MARGIN = 0.03
#: Friction of another form and gears that yield are no cause with a name: they widen what they move, by chance in this
#: share of good recordings (all joints together, Bonferroni; measured: 1 of 150).
FORM_RATE = 1e-3
#: A discrete alternative is named if it leaves at most this share; the best false one left 0.69 on real arms.  Where
#: each joint's torque is explained well, so is one of positions that is better by `CERTAIN` between stretches of time,
#: and by `MARGIN`: by chance in one of 1,000 recordings at most (figures in decision record 45).
ALTERNATIVE_LEFT = 0.5
#: Joints of which less of the torque's variance is explained, or which leave more than this many times the noise, make
#: the discrete alternatives worth their time; where none leaves more, a certain error has no excuse in the model.
WELL_EXPLAINED = 0.95
NEAR_NOISE = 3.0
#: An error that leaves more, but nothing beyond the noise, is named if it moves a value by this many deviations.  A
#: delay is not, because friction that starts and stops looks like one.
HARMFUL = 4.0
#: An error of one joint alone is named if it leaves at most this share of that joint's own residual.
OWN_LEFT = 0.4
#: The effect of a tilt or a zero is linear up to here [rad]; a delay up to here [s].
_LINEAR_RAD = np.radians(15.0)
_LINEAR_S = 0.1
_LINEAR_SCALE = 0.5
_CLOCK = (-0.5, 1.0)  # of a clock, whose estimate is refined from afar: half to twice the rate
_SAME = 1e-3  # share of the residual below which alternatives are one to the data
_ROUNDS = 6
_REFINED = 3  # small errors that are refined on rows built anew
_ENOUGH_ROWS = 5000  # of each joint, in comparisons that build rows anew
_PEAKS = 3
_POSTURES = 100
_STATES_PER_PARAMETER = 4  # random states by which a kind of arm is judged
_TILT_STEP = 1e-4
_NO_EFFECT = 1e-9  # m/s^2 or m^2/s^2: torque by unit parameters at rest


@dataclass(frozen=True)
class Finding:
    """A significant error in the data or the robot file, with what supports it.

    Attributes
    ----------
    kind : str
        "tilt", "gravity", "clock", "zero", "position_scale", "torque_late", "velocity_late",
        "torque_scale", "torque_channels", "positions", "friction", "reversal" or "yielding".
    joint : int or None
    estimate, std : (m,) float64
        In `unit`; empty for discrete alternatives.  "tilt" by rotations about `gravity_axes`.
    unit : str
    z : float
        For orders, signs and zeros of positions, and for a gravity axis, by how many deviations between stretches of
        time their likelihood is larger (Vuong 1989); NaN for other discrete alternatives.
    left : float
        Share of the residual that remains.
    named : bool
        Whether it counts as the cause.
    gravity : (3,) float64 or None
        The gravity vector that it means [m/s^2].
    text : str
        For discrete alternatives, the change of the data; for gravity, what decided its sign.
    """

    kind: str
    joint: int | None
    estimate: FloatArray
    std: FloatArray
    unit: str
    z: float
    left: float
    named: bool
    gravity: FloatArray | None = None
    text: str = ""


@dataclass(frozen=True)
class Peak:
    """One of the largest residuals: `joint`, time [s] and size [N*m or N]."""

    joint: int
    t: float
    size: float


@dataclass(frozen=True)
class Diagnosis:
    """What the tests of a fit found.

    Attributes
    ----------
    findings : tuple of Finding
        Significant ones, the named one first.
    noise : (n,) float64
        Standard deviation of the torque noise in the rows, NaN where unknown.
    sigma : (n,) float64
        Residual standard deviation of the fit.
    shifts : (k, p) float64
        Changes of the base parameters by errors that are significant but not named.
    gravity_acts, gravity_seen, gravity_tells : bool
        Whether gravity has an effect on the arm, and whether this motion, or any motion of it, tells its direction.  A
        pendulum's gravity turned in its plane is the same as another first moment.
    peaks : tuple of Peak
        The largest residuals over their noise, of different joints and times.
    gravity_against_links : float
        Cosine between the gravity torque of the fit and that of the robot file's links in the postures of the
        recording; 1 where the file has no links.  A gravity vector that is turned over comes out as links with first
        moments of the other sign, which fit slow motion as well.
    gravity : GravityFit or None
        Gravity as a free vector, where it was fitted.
    tests : tuple of AddedVariable
        Results for all small errors that have a name.
    """

    findings: tuple[Finding, ...]
    noise: FloatArray
    sigma: FloatArray
    shifts: FloatArray
    gravity_acts: bool
    gravity_seen: bool
    peaks: tuple[Peak, ...]
    gravity_against_links: float = 1.0
    gravity: GravityFit | None = None
    gravity_tells: bool = True
    tests: tuple[AddedVariable, ...] = ()

    @property
    def named(self) -> Finding | None:
        """The cause, if there is one that leaves little."""
        return self.findings[0] if self.findings and self.findings[0].named else None

    @property
    def unexplained(self) -> Finding | None:
        """The most certain error that is not named, where the residual is the noise, so that no model error is."""
        certain = [f for f in self.findings if not f.named and f.z > CERTAIN and f.kind not in FORMS]
        if not certain or self.named is not None or not at_noise(self.sigma, self.noise):
            return None
        return max(certain, key=lambda f: f.z)


@dataclass(frozen=True)
class Fit:
    """The fit that is diagnosed: free base parameters `theta` (p,) on `rows`, with the solution's inverse root.

    `covariance` (p, p) is finite; `changes` (B, p) are those of its jackknife; `weights` (K, n) are those of a robust
    fit or None; `explained` (n,) is the share of each torque's variance.
    """

    model: RobotModel
    base: BaseParameters
    rows: Rows
    theta: FloatArray
    inverse_root: FloatArray
    sigma: FloatArray
    explained: FloatArray
    covariance: FloatArray
    changes: FloatArray
    weights: FloatArray | None = None
    implausible: bool = False


def diagnose(fit: Fit, signals: Signals, settings: SignalSettings) -> Diagnosis:
    """Test a fit on the part of `signals` for errors that are not in the model."""
    rows, model = fit.rows, fit.model
    rows_filter = RowFilter(model, rows, signals, settings)
    noise = row_noise(signals, rows_filter.power_gain)
    coarse = RowFilter(model, rows, signals, settings, coarse=True)
    tested = directions(model, fit.base, fit.theta, coarse, measured_velocity=signals.measured_velocity)
    tested += forms(model, fit.base, fit.theta, coarse)
    test = _test(fit, rows, fit.theta, fit.inverse_root, tested)
    everything = _beside_reversals(test, test.run())
    results = [r for r in everything if (r.identifiable > IDENTIFIABLE and r.kind not in FORMS) or r.kind == "tilt"]
    limit = FORM_RATE / max(sum(r.kind in FORMS and r.identifiable > IDENTIFIABLE for r in everything), 1)
    formed = [k for k, r in enumerate(everything) if r.kind in FORMS and r.rate < limit]
    formed = [k for k in formed if everything[k].kind != "reversal" or _beside_delays(test, everything, k)]
    together = [test.freed(formed)] if formed else []
    tilt = next((r for r in results if r.kind == "tilt"), None)
    acts = _gravity_acts(fit, signals)
    against = _gravity_against_links(fit, signals)
    seen = tilt is not None and tilt.identifiable > IDENTIFIABLE
    present = [r for r in results if r.z > SIGNIFICANT and r.identifiable > IDENTIFIABLE]
    live = rows.use.any(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        loud = live & (fit.sigma > NEAR_NOISE * noise)
    bad = fit.implausible or bool((fit.explained[live] < WELL_EXPLAINED).any() or loud.any())
    gravity = None
    if acts and (bad or against < 0.0 or any(r.kind == "tilt" for r in present)):
        gravity = fit_gravity(model, fit.base, fit.theta, rows, signals, settings, fit.sigma)
    findings = []
    if bad or present:
        findings = _discrete(fit, signals, settings, rows_filter, noise, gravity)
    if not findings or findings[0].kind == "gravity" or findings[0].left > ALTERNATIVE_LEFT:
        refine = partial(_refined, fit, signals, settings)
        cause = _named(fit, refine, noise, present, [*results, *together], gravity)
        if cause is not None and (not findings or _simpler(cause, findings[0])):
            findings = [cause]
    named = bool(findings)
    worst: dict[str, AddedVariable] = {}
    for r in sorted(present, key=lambda r: r.left):
        if not (named and (r.kind, r.joint) == (findings[0].kind, findings[0].joint)):
            findings.append(_finding(r, model, named=False))
        worst.setdefault(r.kind, r)
    findings += [_finding(everything[k], model, named=False) for k in formed]
    moved = [r.shift for r in (*worst.values(), *together)]
    shifts = np.array(moved) if moved else np.zeros((0, fit.theta.size))
    return Diagnosis(
        tuple(findings), noise, fit.sigma, shifts, acts, seen, _peaks(fit), against, gravity,
        seen or not acts or _gravity_tells(fit), tuple(results),
    )  # fmt: skip


def _beside_reversals(test: AddedVariableTest, results: Sequence[AddedVariable]) -> list[AddedVariable]:
    """Return `results` with each delay as estimated beside friction that turns early or late at reversals.

    A joint that sticks when it reverses has the torque of the other direction before it moves: nothing else is early.
    """
    turning = [k for k, r in enumerate(results) if r.kind == "reversal" and r.identifiable > IDENTIFIABLE]

    def beside(k: int, r: AddedVariable) -> AddedVariable:
        both = test.freed([k, *(other for other in turning if r.joint in (None, results[other].joint))])
        eta, std = float(both.eta[0]), float(both.std[0])
        return replace(r, eta=both.eta[:1], std=both.std[:1], z=abs(eta) / std if std > 0.0 else 0.0)

    return [beside(k, r) if r.kind in DELAYS else r for k, r in enumerate(results)]


def _beside_delays(test: AddedVariableTest, results: Sequence[AddedVariable], reversal: int) -> bool:
    """Return whether friction of a joint still turns early or late where the delays that are certain are freed, too."""
    late = [k for k, r in enumerate(results) if r.kind in DELAYS and r.z > CERTAIN and r.identifiable > IDENTIFIABLE]
    both = test.freed([reversal, *(k for k in late if results[k].joint in (None, results[reversal].joint))])
    return not late or bool(np.abs(both.eta[0]) > CERTAIN * both.std[0])


def _gravity_acts(fit: Fit, signals: Signals) -> bool:
    """Return whether the configured gravity has an effect on a joint in the postures of the recording."""
    links = fit.base.layout.take(np.flatnonzero(np.asarray(fit.base.layout.is_link)))
    q = np.concatenate([piece.q[:: max(1, piece.t.size // _POSTURES)] for piece in signals.pieces])
    rest = np.zeros_like(q)
    return bool(len(links) and np.abs(regressor(fit.model, links, q, rest, rest)).max() > _NO_EFFECT)


def _test(
    fit: Fit, rows: Rows, theta: FloatArray, inverse_root: FloatArray, tested: Sequence[Direction]
) -> AddedVariableTest:
    residual = np.where(rows.use, rows.tau - rows.predict(theta), 0.0)
    return AddedVariableTest(rows.Y, residual, rows.use, inverse_root, fit.sigma, tested, weights=fit.weights)


def _simpler(cause: Finding, alternative: Finding) -> bool:
    """Return whether a small error is the cause instead: a clock where it is as good: gravity's size is known."""
    if cause.kind == "clock":
        return cause.left < alternative.left + MARGIN
    return alternative.kind != "gravity" and cause.left < alternative.left - MARGIN


def _finding(r: AddedVariable, model: RobotModel, *, named: bool) -> Finding:
    gravity = tilted(model.gravity, r.eta) if r.kind == "tilt" else None
    return Finding(r.kind, r.joint, r.eta, r.std, r.unit, r.z, r.left, named, gravity)


def _linear(r: AddedVariable) -> bool:
    """Return whether the estimate lies where the derivative describes the effect, or leads to it."""
    limit = {"rad": _LINEAR_RAD, "s": _LINEAR_S, "": _LINEAR_SCALE}.get(r.unit, np.inf)
    return r.kind == "clock" or bool(np.linalg.norm(r.eta) <= limit)


def _named(
    fit: Fit, refine: Callable[[AddedVariable], AddedVariable | None], noise: FloatArray,
    present: Sequence[AddedVariable], results: Sequence[AddedVariable], gravity: GravityFit | None,
) -> Finding | None:  # fmt: skip
    """Return the small error that is the cause, refined; None if there is none."""
    candidates = [r for r in present if r.z > CERTAIN and _linear(r)]
    if not candidates:
        return None
    by_left = sorted(candidates, key=lambda r: r.left)
    chosen = dict.fromkeys([id(r) for r in (*by_left[: _REFINED - 1], max(candidates, key=lambda r: r.z))])
    refined: list[tuple[AddedVariable, Finding, bool]] = []
    std = np.sqrt(np.maximum(np.diag(fit.covariance), 1e-300))
    for r in candidates:
        if id(r) not in chosen:
            continue
        harmful = bool((np.abs(r.shift) > HARMFUL * std).any())
        if r.kind == "tilt":
            # the derivative lacks the moments of links that only a tilted arm shows
            if gravity is not None:
                better = replace(r, left=gravity.left, sigma=gravity.sigma)
                finding = replace(_finding(better, fit.model, named=True), gravity=gravity.vector, text=gravity.sign)
                refined.append((better, finding, harmful))
            continue
        found = refine(r)
        if found is not None and found.z > CERTAIN:
            refined.append((found, _finding(found, fit.model, named=True), harmful))
    if not refined:
        return None
    best, finding, harmful = min(refined, key=lambda item: item[0].left)
    others = [r.left for r in results if r.kind != best.kind] + [r.left for r, *_ in refined if r.kind != best.kind]
    if min(others, default=1.0) - best.left < MARGIN:
        return None
    own = 1.0 if best.joint is None else float(best.sigma[best.joint] / _reweighted(fit, _every(fit.rows))[best.joint])
    alone = best.kind in (*DELAYS, "torque_scale") and own < OWN_LEFT
    quiet = harmful and best.kind not in DELAYS and at_noise(best.sigma, noise)
    explained = best.left < SMALL_LEFT or alone or quiet
    return finding if explained else None


def _reweighted(fit: Fit, every: int) -> FloatArray:
    """Return the residual standard deviations (n,) of an iteratively reweighted fit to each `every`-th row."""
    rows = fit.rows
    Y = np.ascontiguousarray(rows.Y[:, :, ::every])
    return solve(compress(Y, rows.tau[::every], rows.use[::every]), fit.theta.size, "iwls").sigma


def _every(rows: Rows) -> int:
    """Return each which row decides an error: neighbours share most of their filters, and more rows add little."""
    return max(1, rows.t.size // _ENOUGH_ROWS)


def _refined(fit: Fit, signals: Signals, settings: SignalSettings, best: AddedVariable) -> AddedVariable | None:
    """Apply an error, build the rows anew and fit again, until the estimate settles; None if it does not."""
    eta = np.clip(best.eta, *_CLOCK) if best.kind == "clock" else best.eta
    model = fit.model
    load = fit.theta if fit.base.layout.has_load else None
    every = _every(fit.rows)
    plain = _reweighted(fit, every)
    for _ in range(_ROUNDS):
        try:
            changed = corrected(model, signals, replace(best, eta=eta))
            built = build_rows(model, fit.base, changed, settings, load_theta=load, slow=fit.rows.slow, every=every)
            rows = built.select(*signals.part)
            solution = solve(compress(rows.Y, rows.tau, rows.use), fit.theta.size, "iwls")
        except (DataError, ValueError):
            return None
        coarse = RowFilter(model, rows, changed, settings, coarse=True)
        only = (best.kind, best.joint)
        tested = directions(
            model, fit.base, solution.theta, coarse, measured_velocity=signals.measured_velocity, only=only
        )
        refit = replace(fit, sigma=solution.sigma, weights=None)
        if best.kind in DELAYS:
            tested += reversals(model, coarse)
        test = _test(refit, rows, solution.theta, solution.inverse_root, tested)
        found = _beside_reversals(test, test.run())[0]
        n = rows.use.sum(axis=0)
        live = n > 0
        left = float(np.exp(np.sum(n[live] * np.log(solution.sigma[live] / plain[live])) / n.sum()))
        step = found.eta
        size = 1.0 + eta if best.unit == "" else np.ones_like(eta)  # found is of what is scaled already
        std = found.std * size
        with np.errstate(divide="ignore", invalid="ignore"):
            z = float(np.sqrt(np.sum((eta / std) ** 2)))
        current = replace(best, eta=eta, std=std, z=z, left=left, sigma=solution.sigma)
        eta = eta + step * size
        eta = np.clip(eta, *_CLOCK) if best.kind == "clock" else eta
        if found.z < 1.0:
            return replace(current, eta=eta)  # the last step is within its deviation
        if not _linear(replace(best, eta=eta)):
            return None
    return current if np.all(np.abs(step) < 2.0 * found.std) else None


def _discrete(
    fit: Fit, signals: Signals, settings: SignalSettings, rows_filter: RowFilter, noise: FloatArray,
    gravity: GravityFit | None,
) -> list[Finding]:  # fmt: skip
    """Return the discrete alternative that is the cause of a bad fit, if one leaves little."""
    found: list[Finding] = []
    empty = np.zeros(0)
    live = fit.rows.use.any(axis=0)
    well = bool((fit.explained[live] >= WELL_EXPLAINED).all()) and not fit.implausible
    if gravity is not None:
        free = _accepted(gravity, noise)
        # where the torque is explained otherwise; gravity that is tilted, not turned over, lies on no axis
        if free or (well and gravity.axis_z > AXIS_BETTER > gravity.free_z):
            of_vector = np.nan, gravity.left, True, gravity.vector, gravity.sign
            of_axis = gravity.axis_z, gravity.axis_left, True, gravity.axis, gravity.axis_sign
            found.append(Finding("gravity", None, empty, empty, "m/s^2", *(of_vector if free else of_axis)))
    if fit.rows.use.any(axis=0).all():
        trials = torque_alternatives(fit.model, fit.rows, signals, rows_filter, fit.sigma)
        trials += position_alternatives(fit.model, fit.base, fit.rows, signals, settings, fit.sigma)
        found += [
            Finding(a.kind, None, empty, empty, "", a.z, a.left, True, text=a.text)
            for a in trials
            # small joints that are exchanged leave little of the whole torque, and much beside what noise is known
            if _accepted(a, noise) or (well and a.z > CERTAIN and a.left < 1.0 - MARGIN)
        ]
    found.sort(key=lambda f: f.left)
    same = [f.text for f in found if f.kind == found[0].kind == "positions" and f.left < found[0].left + _SAME]
    return [replace(found[0], text=" or ".join(same) or found[0].text)] if found else []


def _accepted(found: Alternative | GravityFit, noise: FloatArray) -> bool:
    return found.left <= ALTERNATIVE_LEFT or (found.left < SMALL_LEFT and at_noise(found.sigma, noise))


def _gravity_tells(fit: Fit) -> bool:
    """Return whether rich motion would tell a tilt of this arm from its parameters: at random states, without noise."""
    model, base = fit.model, fit.base
    rng = np.random.default_rng(0)
    bounded = [np.isfinite(j.lower) and np.isfinite(j.upper) for j in model.joints]
    lower, upper = (
        np.where(bounded, [getattr(j, end) for j in model.joints], sign * np.pi)
        for end, sign in (("lower", -1.0), ("upper", 1.0))
    )
    count = _STATES_PER_PARAMETER * len(base)
    q = rng.uniform(lower, upper, (count, model.n))
    # accelerations whose torque is of the size of that of gravity
    dq, ddq = (scale * rng.standard_normal(q.shape) for scale in (np.sqrt(STANDARD_GRAVITY), STANDARD_GRAVITY))
    layout = base.layout
    layout = layout.take(np.flatnonzero(layout.law != LAW_LOAD)) if layout.has_load else layout
    warm = np.full_like(q, REFERENCE_TEMPERATURE) if layout.has_temperature else None
    Y = regressor(model, layout, q, dq, ddq, temperature=warm)
    Y = Y.reshape(-1, Y.shape[-1])
    D = np.stack([_tilt_torque(model, base, fit.theta, e, (q, dq, ddq)).ravel() for e in np.eye(2)], axis=1)
    size = np.linalg.norm(D, axis=0)
    outside = np.linalg.norm(D - Y @ np.linalg.lstsq(Y, D, rcond=1e-10)[0], axis=0)
    return bool((outside > IDENTIFIABLE * np.maximum(size, 1e-300)).any())


def _tilt_torque(
    model: RobotModel, base: BaseParameters, theta: FloatArray, axis: FloatArray, state: tuple[FloatArray, ...]
) -> FloatArray:
    """Return the change of the torque (N, n) at a `state` by a tilt about an axis, per rad."""
    step = _TILT_STEP * axis
    up, down = (
        link_torque(replace(model, gravity=tilted(model.gravity, s * step)), base, theta, *state) for s in (1.0, -1.0)
    )
    return (up - down) / (2.0 * _TILT_STEP)


def _gravity_against_links(fit: Fit, signals: Signals) -> float:
    """Return the cosine between the gravity torque of the fit and of the robot file's links.

    1 where the file has no links, or where the data do not tell the sign of the torque along theirs: its ratio to its
    deviation by the jackknife over blocks of time is Student's t with 14 degrees of freedom, and `CERTAIN` of it a rate
    of false alarms of 2e-5.
    """
    model, base = fit.model, fit.base
    if model.inertial is None or not np.any(model.gravity) or not (model.inertial[:, 0] > 0.0).all():
        return 1.0
    q = np.concatenate([piece.q[:: max(1, piece.t.size // _POSTURES)] for piece in signals.pieces])
    rest = np.zeros_like(q)
    links = np.flatnonzero(np.asarray(base.layout.is_link))
    Y = regressor(model, base.layout.take(links), q, rest, rest)
    given = inverse_dynamics(model.geometry, model.gravity, model.inertial, q, rest, rest)
    size = np.sqrt(np.mean(given**2, axis=0))
    seen = fit.rows.use.any(axis=0) & (size > fit.sigma)
    a = np.where(seen, given / np.maximum(size, 1e-12) ** 2, 0.0)  # torques of all joints count alike
    along = np.einsum("kn,knp->p", a, Y)
    product = float(along @ fit.theta[links])
    deviation = float(np.linalg.norm(fit.changes[:, links] @ along))
    if fit.changes.shape[0] < BLOCKS or not -product > CERTAIN * deviation:
        return 1.0
    b = np.where(seen, (Y @ fit.theta[links]) / np.maximum(size, 1e-12), 0.0)
    return product / float(np.linalg.norm(np.where(seen, given / np.maximum(size, 1e-12), 0.0)) * np.linalg.norm(b))


def _peaks(fit: Fit) -> tuple[Peak, ...]:
    """Return the largest residuals over each joint's own spread, at least a second apart."""
    rows = fit.rows
    residual = np.where(rows.use, rows.tau - rows.predict(fit.theta), 0.0)
    size = np.abs(residual) / np.where(fit.sigma > 0.0, fit.sigma, np.inf)
    found: list[Peak] = []
    for flat in np.argsort(size, axis=None)[::-1]:
        row, joint = divmod(int(flat), size.shape[1])
        if size[row, joint] <= 0.0 or len(found) == _PEAKS:
            break
        if all(abs(rows.t[row] - p.t) >= 1.0 for p in found):
            found.append(Peak(joint, float(rows.t[row]), float(residual[row, joint])))
    return tuple(found)

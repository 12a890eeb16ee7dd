"""Plausibility checks of imported data: time stamps, and wrong units, sides and signs.

Positions, velocities and torques are checked against each other and, if the robot is known, against its limits, to
find errors such as degrees taken for radians.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from drivers.files.importing.data_source import DataError
from rt_core.channels import ChannelFault, velocity_relation
from rt_core.model.robot import Joint
from rt_core.types import FloatArray, IntArray

_DEGREES = 180.0 / np.pi

#: Factors between units that are easily confused, larger first.
_FACTORS = (
    (1e6, "micro-units"), (1e3, "milli-units"), (360.0, "turns and degrees"), (60.0, "per minute and per second"),
    (_DEGREES, "degrees and radians"), (30.0 / np.pi, "rpm and rad/s"), (2.0 * np.pi, "turns and radians"),
)  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Steps between time stamps [s]; gaps are steps longer than three times the median."""

    step_min_s: float
    step_median_s: float
    step_max_s: float
    gaps: int
    longest_gap_at_s: float | None


def check_increasing(t_ns: IntArray, where: str) -> None:
    """Raise `DataError` unless time stamps (N,) [ns] increase; `where` is file and column for the message."""
    steps = np.diff(t_ns)
    backwards = np.flatnonzero(steps < 0)
    if backwards.size:
        row = int(backwards[0])
        raise DataError(
            f"{where}: time stamps go backwards at {backwards.size} of {len(t_ns)} rows, first at row {row + 1} "
            f"({(t_ns[row + 1] - t_ns[0]) * 1e-9:.6f} s after {(t_ns[row] - t_ns[0]) * 1e-9:.6f} s, rows from 0); "
            f"the rows are shuffled, several records are in one file, or the clock was set back: sort or split it"
        )
    same = np.flatnonzero(steps == 0)
    if same.size:
        row = int(same[0])
        raise DataError(
            f"{where}: {same.size} rows repeat the time stamp of the row before with other values, first row {row + 1} "
            f"at {(t_ns[row + 1] - t_ns[0]) * 1e-9:.6f} s (rows from 0); the stamps are too coarse or their unit is "
            f"wrong: check time.unit, or use time.rate_hz if the samples are evenly spaced"
        )


#: A gap this many times longer than all other steps together is another clock.
_CLOCK_GAP = 100.0


def check_one_clock(t_ns: IntArray, where: str) -> None:
    """Raise `DataError` if time stamps (N,) [ns] jump once by far more than the rest of the recording."""
    steps = np.diff(t_ns)
    k = int(np.argmax(steps))
    rest = int(t_ns[-1] - t_ns[0] - steps[k])
    if steps.size > 2 and steps[k] > _CLOCK_GAP * max(rest, 1):
        raise DataError(
            f"{where}: the time stamps jump by {steps[k] * 1e-9:.6g} s at row {k + 1} (rows from 0), all others span "
            f"{rest * 1e-9:.6g} s: they are of two clocks, as before a controller has its time; cut the file there"
        )


#: Stamps are of arrival where lines between neighbours by them miss positions by so many times as much as by rows: good
#: logs have at most 1.1, bursts of 2 to 500 rows 8 and more.  So have even samples whose stamps scatter, which does no
#: harm up to a fifth of a step (normal): these have 0.2 % of steps below a fifth of the mean.
_MISSED, _SHORT, _FEW = 3.0, 0.2, 0.01


def arrival_text(t: FloatArray, q: FloatArray, where: str) -> str | None:
    """Return what is wrong with stamps (N,) [s] that are when rows of `q` (N, n) arrived; None if they are not."""
    steps = np.diff(t)
    short = steps < _SHORT * steps.mean()
    if short.mean() <= _FEW or steps.size < 2:
        return None
    line = (steps[:-1] / (steps[:-1] + steps[1:]))[:, None]
    finite = np.isfinite(q)
    known, q = finite[:-2] & finite[1:-1] & finite[2:], np.where(finite, q, 0.0)
    before, here, after = q[:-2], q[1:-1], q[2:]
    by_time, by_row = (
        np.sum(np.abs(here - before - share * (after - before)), axis=0, where=known) for share in (line, 0.5)
    )
    if not (by_time > _MISSED * np.maximum(by_row, 1e-12)).any():
        return None
    return (
        f"{where}: {int(short.sum())} of {short.size} steps are below a fifth of their mean of {steps.mean():.3g} s, "
        "and positions go on evenly by rows, not by stamps: these are when rows arrived, in bursts, not when they were "
        "measured; log the time of the measurement, or use time.rate_hz if the samples are evenly spaced"
    )


def unit_of_time(step_s: float, unit: str) -> str | None:
    """Return a warning if the median step [s] is none of a robot's log, but would be in another unit."""
    if step_s > 0.2 and 20.0 <= 1e3 / step_s <= 2e4 and unit == "s":
        return (
            f"the median step is {step_s:.6g} s, slow for a robot's log: if the stamps are milliseconds, set "
            "time.unit = 'ms'"
        )
    if step_s < 2e-6 and unit != "s":
        return f"the median step is {step_s:.3g} s, fast for a robot's log: check time.unit, which is {unit!r}"
    return None


def fault_text(
    fault: ChannelFault, t: FloatArray, joint_names: tuple[str, ...], units: tuple[str, ...], masking: bool
) -> str | None:
    """Return what is wrong with a position, in a sentence; None for what was repaired."""
    if fault.kind == "wrap" or (fault.kind == "dropout" and masking):
        return None
    where = f"joint {joint_names[fault.joint]}: q"
    size, unit = abs(fault.size), units[fault.joint]
    times = f"{fault.count} times, first at {t[fault.first]:.6g} s"
    if fault.kind == "rollover":
        return (
            f"{where} jumps by nearly its whole range {times}: a counter that rolls over, or signed numbers of 16 bit "
            "read as unsigned; log them as signed, or unwrap them first"
        )
    how = f"by up to {size:.4g} {unit} within a sample, faster than it can move"
    if fault.kind == "dropout":
        return (
            f"{where} drops out {times}, {how}; missing = 'mask' in the mapping marks these "
            f"{fault.samples.size} samples invalid"
        )
    turns = unit == "rad" and size > 300.0 and abs(size - 360.0 * round(size / 360.0)) < 18.0
    likely = "; these are turns of 360: q.unit is likely 'deg'" if turns else ""
    return f"{where} jumps {times}, {how}{likely}; cut the recording there, or repair the log"


def timing(t_ns: IntArray) -> Timing:
    """Return the statistics of increasing time stamps (N,) [ns], N >= 2."""
    steps = np.diff(t_ns) * 1e-9
    median = float(np.median(steps))
    long = np.flatnonzero(steps > 3.0 * median)
    at = float((t_ns[int(np.argmax(steps))] - t_ns[0]) * 1e-9) if long.size else None
    return Timing(float(steps.min()), median, float(steps.max()), int(long.size), at)


def plausibility(
    t: FloatArray, channels: Mapping[str, FloatArray], joint_names: tuple[str, ...], units: tuple[str, ...],
    joints: tuple[Joint, ...] | None, *, turning: Collection[int] = (),
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Check for wrong units, sides and signs; return errors and warnings, one sentence each.

    Time `t` (N,) [s], channels (N, n) joint side, SI, NaN where a value is missing. `joints` have the limits, None if
    the robot is unknown; the position of those `turning` was unwrapped: they turn as far as they like.
    """
    errors: list[str] = []
    warnings: list[str] = []
    for j, name in enumerate(joint_names):
        joint = None if joints is None else joints[j]
        for check in (_velocity, _torque) if j in turning else (_position, _velocity, _torque):
            wrong, odd = check(t, channels, j, units[j], joint)
            errors += [f"joint {name}: {text}" for text in wrong]
            warnings += [f"joint {name}: {text}" for text in odd]
    if not errors and "q" in channels and len(t) > 1:
        travel = np.nanmax(channels["q"], axis=0) - np.nanmin(channels["q"], axis=0)
        limits = [np.inf] * len(units) if joints is None else [joint.upper - joint.lower for joint in joints]
        small = [travel[j] < 0.06 or travel[j] < 0.03 * limits[j] < np.inf for j in range(len(units))]
        if all(unit == "rad" for unit in units) and all(small):
            warnings.append(
                f"no joint moves by more than {np.max(travel):.3g} rad ({np.max(travel) * _DEGREES:.3g} deg): if the "
                f"robot did move, the values were in radians already, or on the joint side already"
            )
    return errors, warnings


Findings = tuple[list[str], list[str]]


def _position(_t: FloatArray, channels: Mapping[str, FloatArray], j: int, unit: str, joint: Joint | None) -> Findings:
    """Compare q with the joint's limits or, without them, with the range of usual arms."""
    if "q" not in channels:
        return [], []
    q = channels["q"][:, j]
    low, high = float(np.nanmin(q)), float(np.nanmax(q))
    if joint is not None and np.isfinite(joint.lower) and np.isfinite(joint.upper):
        span = joint.upper - joint.lower
        excess = max(joint.lower - low, high - joint.upper)
        text = f"q runs from {low:.4g} to {high:.4g} {unit}, its limits are {joint.lower:.4g} to {joint.upper:.4g}"
        if excess > 0.5 * span:
            likely = "q.unit is likely 'deg'" if unit == "rad" else "q.unit is likely 'mm'"
            return [f"{text}; {likely}, or q.side 'motor', or q.offset is missing"], []
        if excess > 0.02 * span:
            return [], [f"{text}; check q.offset and q.sign"]
        return [], []
    if unit == "rad" and high - low > 20.0 * np.pi:
        return [
            f"q runs over {high - low:.4g} rad, {(high - low) / (2 * np.pi):.3g} turns; q.unit is likely 'deg', or "
            f"q.side 'motor' (if the joint does turn that far, set checks.plausibility = 'warn')"
        ], []
    if unit == "m" and high - low > 10.0:
        return [f"q runs over {high - low:.4g} m; q.unit is likely 'mm' (or set checks.plausibility = 'warn')"], []
    return [], []


def _velocity(t: FloatArray, channels: Mapping[str, FloatArray], j: int, unit: str, joint: Joint | None) -> Findings:
    """Compare dq with the joint's limit and with the change of q."""
    if "dq" not in channels:
        return [], []
    errors: list[str] = []
    warnings: list[str] = []
    dq = channels["dq"][:, j]
    peak = float(np.nanmax(np.abs(dq)))
    if joint is not None and np.isfinite(joint.velocity) and peak > 3.0 * joint.velocity:
        errors.append(
            f"|dq| reaches {peak:.4g} {unit}/s, {peak / joint.velocity:.3g} times its limit of {joint.velocity:.4g}; "
            f"check dq.unit and dq.side"
        )
    if "q" not in channels:
        return errors, warnings
    ratio, correlation = velocity_ratio(t, channels["q"][:, j], dq)
    if correlation is None or abs(correlation) < 0.9:
        if correlation is not None and correlation < 0.8:
            warnings.append(f"dq does not follow the change of q (correlation {correlation:.2f}); check dq.columns")
        return errors, warnings
    if correlation < 0.0:
        errors.append("dq has the opposite sign of the change of q; check q.sign and dq.sign")
    factor = abs(ratio)
    if not 0.5 < factor < 2.0:
        size = factor if factor > 1.0 else 1.0 / factor
        known, meaning = min(_FACTORS, key=lambda item: abs(np.log(size / item[0])))
        if 0.93 < size / known < 1.07:
            shown = f"{known:.4g}" if factor > 1.0 else f"1/{known:.4g}"
            hint = f"a factor of {shown}, as between {meaning}; check q.unit and dq.unit"
            errors.append(f"dq is {factor:.4g} times the change of q: {hint}")
        else:
            errors.append(f"dq is {factor:.4g} times the change of q; check the units, q.side, dq.side, and time.unit")
    elif not 0.9 < factor < 1.1:
        warnings.append(f"dq is {factor:.3g} times the change of q; check the units and the time stamps")
    late = lag_text(t, channels["q"][:, j], dq)
    if late is not None:
        warnings.append(late)
    return errors, warnings


def _torque(_t: FloatArray, channels: Mapping[str, FloatArray], j: int, unit: str, joint: Joint | None) -> Findings:
    """Compare tau with the joint's limit; a constant signal gives a warning."""
    if "tau" not in channels:
        return [], []
    tau = channels["tau"][:, j]
    peak = float(np.nanmax(np.abs(tau)))
    quantity = "N*m" if unit == "rad" else "N"
    if joint is not None and np.isfinite(joint.effort) and peak > 3.0 * joint.effort:
        return [
            f"|tau| reaches {peak:.4g} {quantity}, {peak / joint.effort:.3g} times its limit of {joint.effort:.4g}; "
            f"check tau.unit, tau.scale and tau.side"
        ], []
    if float(np.nanmax(tau)) == float(np.nanmin(tau)):
        return [], [f"tau is {tau[np.isfinite(tau)][0]:.4g} {quantity} throughout: the column carries no signal"]
    return [], []


#: A lag is mentioned above this many standard deviations, if it is longer than a sample.
_SIGNIFICANT = 4.0


def lag_text(t: FloatArray, q: FloatArray, dq: FloatArray) -> str | None:
    """Return that a measured velocity lags the change of its position by more than a sample; None if it does not."""
    good = np.isfinite(q) & np.isfinite(dq)
    relation = velocity_relation(t[good], q[good], dq[good]) if good.any() else None
    if relation is None or abs(relation.lag_s) < float(np.median(np.diff(t))):
        return None
    if abs(relation.lag_s) < _SIGNIFICANT * relation.lag_std_s:
        return None
    side = "behind" if relation.lag_s > 0.0 else "ahead of"
    return (
        f"dq is {1e3 * abs(relation.lag_s):.3g} +- {1e3 * relation.lag_std_s:.2g} ms {side} the change of q: it was "
        "filtered, or comes from another clock; an identification takes the velocity from q where that matters"
    )


def velocity_ratio(t: FloatArray, q: FloatArray, dq: FloatArray) -> tuple[float, float | None]:
    """Compare time [s], position and velocity (N,) of one joint; NaN where missing.

    Return the ratio of integrated `dq` to the change of `q`, both over short windows, and their correlation, None if
    the joint does not move.
    """
    good = np.isfinite(q) & np.isfinite(dq)
    t, q, dq = t[good], q[good], dq[good]
    window = max(1, min(len(t) // 20, round(0.05 / float(np.median(np.diff(t)))))) if len(t) > 40 else 0
    if window == 0:
        return 1.0, None
    area = np.concatenate(([0.0], np.cumsum(0.5 * (dq[1:] + dq[:-1]) * np.diff(t))))
    change = q[window:] - q[:-window]
    integral = area[window:] - area[:-window]
    norm_change, norm_integral = float(np.linalg.norm(change)), float(np.linalg.norm(integral))
    moved = float(np.max(q) - np.min(q))
    if norm_change == 0.0 or norm_integral == 0.0 or moved == 0.0:
        return 1.0, None
    # A joint at rest has only noise.
    if moved < 10.0 * float(np.median(np.abs(np.diff(q)))) or moved < 1e-3:
        return 1.0, None
    correlation = float(change @ integral) / (norm_change * norm_integral)
    return norm_integral / norm_change, correlation

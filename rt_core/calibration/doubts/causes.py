"""One cause of measurements that the nominal arm does not explain: units, signs, order, convention.

Each alternative is tried on the nominal arm with base and tool fitted.  One is named only if it leaves at most a share
of the typical error: errors of the nominal geometry remain with the right one, too.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import scipy.linalg as la

from rt_core.calibration.elements import FRAME, ZERO
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.frames import with_fitted_frames
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Sample
from rt_core.calibration.settings import CalibrationSettings
from rt_core.types import BoolArray, FloatArray

#: Share of the typical error from which another unit of all joints or lengths explains the measurements.
_EXPLAINS = 0.2
#: The same for all else.
_HALF = 0.5
#: Poses that suffice to show a cause, besides those for each station, head and socket.
_ENOUGH = 300
#: Poses that determine a station, a head or a socket.
_ENOUGH_OF_EACH = 6
_SCALE_STEPS = 12
_SCALE_RANGE = (0.3, 3.0)
_SAME_SCALE = 1e-3

Alternative = tuple[str, Geometry, Sample]


def likely_cause(
    modelled: Callable[[Geometry], ErrorModel], geometry: Geometry, sample: Sample, settings: CalibrationSettings,
    alive: Callable[[], None],
) -> tuple[str, float | None]:  # fmt: skip
    """Return what explains the measurements by the nominal arm, or "", and the share of the error that it leaves.

    `modelled` returns the error model of a geometry without fitted frames; `alive` is called in between; an exception
    ends the search.
    """
    careful = replace(settings, robust=True, excluded=())
    sample = thinned(sample)

    def error(geometry: Geometry, candidate: Sample) -> float:
        model = with_fitted_frames(modelled(geometry), candidate, careful, alive)
        r = model.residual(candidate, np.zeros(model.size))[:, :3]
        spread = model.predict(candidate.q, np.zeros(model.size))[0].std()
        return float(np.median(np.linalg.norm(r, axis=1)) / max(spread, 1e-12))

    own = max(error(geometry, sample), np.finfo(np.float64).tiny)
    common = [(what, error(arm, its) / own / _EXPLAINS) for what, arm, its in _other_units(geometry, sample)]
    read = _otherwise_read(geometry, sample, settings.base)
    others = [(what, error(arm, its) / own / _HALF) for what, arm, its in read]
    fitted = with_fitted_frames(modelled(geometry), sample, careful, alive)
    for k in range(geometry.n):
        zero, _ = _of_joint(fitted, sample, k, scaled=False)
        left, scale = _of_joint(fitted, sample, k, scaled=True)
        if abs(scale - 1.0) > _SAME_SCALE:
            text = f"joint {k + 1} looks as if it moved {scale:.4g} times as far as it says: check its gear ratio"
            others.append((text, left / max(zero, np.finfo(np.float64).tiny) / _HALF))
    best, share = min(common, key=lambda item: item[1])
    limit = _EXPLAINS
    if min(others, key=lambda item: item[1])[1] < share:
        (best, share), limit = min(others, key=lambda item: item[1]), _HALF
    return (best, share * limit) if share <= 1.0 else ("", None)


def _other_units(geometry: Geometry, sample: Sample) -> list[Alternative]:
    """Return the alternatives of all joints or all lengths."""
    turns = np.array(geometry.revolute)
    found = [
        ("joint positions look like degrees, not radians", geometry, _with_joints(sample, turns, np.pi / 180.0)),
        ("joint positions look as if converted from degrees twice", geometry, _with_joints(sample, turns, 180 / np.pi)),
    ]
    if sample.point is None or sample.length is not None:
        found += [
            ("lengths look like millimetres, not metres", geometry, _with_lengths(sample, 1e-3)),
            ("lengths look as if converted from millimetres twice", geometry, _with_lengths(sample, 1e3)),
        ]
    return found


def _otherwise_read(geometry: Geometry, sample: Sample, base: bool) -> list[Alternative]:
    """Return the alternatives of single joints, pairs of joints, the measuring frame and the table of the robot.

    With an unknown `base` any mirrored axis, and any two exchanged ones, are the same but for a rotation.
    """
    found: list[Alternative] = []
    turns = np.array(geometry.revolute)
    for k, joint in enumerate(np.eye(turns.size, dtype=np.bool_), 1):
        text = f"joint {k} looks turned round: try the other sign"
        found.append((text, geometry, _with_joints(sample, joint, -1.0)))
        if turns[k - 1]:
            text = f"joint {k} looks like degrees, not radians"
            found.append((text, geometry, _with_joints(sample, joint, np.pi / 180.0)))
    for i, j in itertools.combinations(range(turns.size), 2):
        order = np.arange(turns.size)
        order[[i, j]] = j, i
        text = f"the columns of joints {i + 1} and {j + 1} look exchanged"
        found.append((text, geometry, _at(sample, sample.q[:, order])))
    if sample.point is None:
        axes = np.eye(3)
        if base:
            text = "the measuring frame looks left-handed: an axis is mirrored, or two of its columns are exchanged"
            found.append((text, geometry, _reflected(sample, np.diag([-1.0, 1.0, 1.0]))))
        else:
            for k, name in enumerate("xyz"):
                mirror = np.diag(np.where(np.arange(3) == k, -1.0, 1.0))
                text = f"the measured {name} looks mirrored: try the other sign"
                found.append((text, geometry, _reflected(sample, mirror)))
            for i, j in itertools.combinations(range(3), 2):
                order = np.arange(3)
                order[[i, j]] = j, i
                text = f"the measured {'xyz'[i]} and {'xyz'[j]} look exchanged"
                found.append((text, geometry, _reflected(sample, axes[order])))
    if geometry.rows:
        other: Literal["dh", "mdh"] = "mdh" if geometry.convention == "dh" else "dh"
        names = {"dh": "standard DH", "mdh": "modified (Craig) DH"}
        text = f"the robot's table looks like {names[other]}, not {names[geometry.convention]}: change `kinematics`"
        found.append((text, replace(geometry, convention=other), sample))
    return found


def thinned(sample: Sample, enough: int = _ENOUGH, of_each: int = _ENOUGH_OF_EACH) -> Sample:
    """Return about `enough` poses of a sample, evenly spread.

    Each station with each head, and each socket or centre, keeps its share, and at least `of_each` poses if it has
    them, because only these determine its frame or position.
    """
    if len(sample) <= enough:
        return sample
    kinds = [numbers for numbers in (sample.station, sample.head, sample.point) if numbers is not None]
    group = np.zeros(len(sample), dtype=np.int64)
    if kinds:
        group = np.unique(np.column_stack(kinds), axis=0, return_inverse=True)[1].ravel()
    keep = np.zeros(len(sample), dtype=np.bool_)
    for g in range(int(group.max()) + 1):
        own = np.flatnonzero(group == g)
        count = min(own.size, max(of_each, round(enough * own.size / len(sample))))
        keep[own[np.linspace(0, own.size - 1, count).astype(np.int64)]] = True
    return sample.take(keep)


def _of_joint(model: ErrorModel, sample: Sample, joint: int, *, scaled: bool) -> tuple[float, float]:
    """Return the median error with one joint's zero fitted, and if `scaled` its scale, and that scale (Gauss-Newton).

    Frames and fixed points are fitted along.  The zero is in both, because a scale of a joint far from zero does what
    a wrong zero does.
    """
    frames = np.flatnonzero(model.priority == FRAME)
    zero = np.flatnonzero(model.priority == ZERO)[joint]
    used = np.append(frames, zero)
    one = np.arange(model.revolute.size) == joint
    x, scale = np.zeros(model.size), 1.0
    for _ in range(_SCALE_STEPS):
        moved = _with_joints(sample, one, scale)
        J = model.jacobian(moved, x)
        rows = J[:, :, used]
        if scaled:
            rows = np.append(rows, J[:, :, [zero]] * sample.q[:, None, [joint]], axis=2)
        r = model.residual(moved, x).ravel()
        step = la.lstsq(rows.reshape(-1, rows.shape[2]), -r, cond=1e-8, check_finite=False)[0]
        x[used] += step[: used.size]
        scale = float(np.clip(scale + step[used.size :].sum(), *_SCALE_RANGE))
    r = model.residual(_with_joints(sample, one, scale), x)[:, :3]
    return float(np.median(np.linalg.norm(r, axis=1))), scale


def _at(sample: Sample, q: FloatArray) -> Sample:
    return replace(sample, q=q, cosine=np.cos(q), sine=np.sin(q))


def _reflected(sample: Sample, mirror: FloatArray) -> Sample:
    """Return the sample with measurements reflected by `mirror` (3, 3), and rotations likewise."""
    measured = sample.measured.copy()
    measured[:, 9:] = sample.positions @ mirror.T
    measured[:, :9] = (mirror @ sample.rotations @ mirror.T).reshape(-1, 9)
    return replace(sample, measured=measured)


def _with_joints(sample: Sample, turns: BoolArray, factor: float) -> Sample:
    return _at(sample, np.where(turns, factor * sample.q, sample.q))


def _with_lengths(sample: Sample, factor: float) -> Sample:
    measured = sample.measured.copy()
    measured[:, 9:] *= factor
    return replace(sample, measured=measured, length=None if sample.length is None else factor * sample.length)

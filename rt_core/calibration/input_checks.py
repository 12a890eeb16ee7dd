"""Checks of the input of a calibration: shapes, finite values, plausible sizes."""

import numpy as np
from scipy.spatial.transform import Rotation

from rt_core.calibration.elements import FRAME
from rt_core.calibration.error_model import ErrorModel
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.sample import Contacts, Distances, Sample
from rt_core.calibration.settings import MAX, CalibrationError, CalibrationSettings
from rt_core.types import BoolArray, FloatArray, IntArray

_UNIT_QUATERNION = 1e-3
_ALIKE = 1e-3
#: Minimum number of poses at a station.
_MIN_AT_STATION = 3


def checked_sample(
    geometry: Geometry, q: FloatArray, measured: FloatArray | Contacts | Distances, use: BoolArray | None
) -> tuple[Sample, BoolArray]:
    """Return the sample of joint positions `q` (N, n) and measurements, and which poses are fitted (N,).

    Raises `CalibrationError` if shapes do not match, a number is not finite or beyond `MAX`, a quaternion is not of
    unit length, all poses are alike, or no pose is to be fitted.
    """
    q = np.asarray(q, dtype=np.float64)
    if q.ndim != 2 or q.shape[1] != geometry.n:
        raise CalibrationError(f"joint positions have shape {q.shape}, not (N, {geometry.n}) as the arm's joints")
    _check_numbers("joint positions", q)
    use = np.ones(len(q), dtype=np.bool_) if use is None else np.asarray(use, dtype=np.bool_)
    if use.shape != (len(q),) or not use.any():
        raise CalibrationError(f"use has shape {use.shape} for {len(q)} poses, or holds no pose to fit")
    if len(q) > 1 and np.ptp(q[use], axis=0).max() < _ALIKE:
        raise CalibrationError(
            f"all poses are alike: no joint moves by as much as {_ALIKE:g} rad or m: move all joints, over a wide range"
        )
    if isinstance(measured, Contacts):
        return Sample.at_points(q, _numbered("socket", measured.socket, len(q), use, must_fit=False)), use
    if isinstance(measured, Distances):
        centre = _numbered("centre", measured.centre, len(q), use, must_fit=True)
        length = np.asarray(measured.length, dtype=np.float64)
        if length.shape != centre.shape:
            raise CalibrationError(f"distances have shape {length.shape}, not ({len(q)},)")
        _check_numbers("distances", length[:, None])
        if (length <= 0.0).any():
            raise CalibrationError(f"the distance of pose {int((length <= 0.0).argmax())} (from 0) is not above 0 m")
        return Sample.at_points(q, centre, length), use
    return _of_poses(q, np.asarray(measured, dtype=np.float64)), use


def checked_heads(head: IntArray, sample: Sample, use: BoolArray, tool: bool) -> IntArray:
    """Check the numbers (N,) of the points on the tool: positions of an unknown tool, each with poses to fit.

    Raises `CalibrationError` if they do not.
    """
    if sample.width != 3 or sample.point is not None or not tool:
        raise CalibrationError("several heads take positions in a measuring frame, and a tool that is unknown")
    return _numbered("head", head, len(sample), use, must_fit=True)


def checked_stations(station: IntArray, sample: Sample, use: BoolArray, base: bool) -> IntArray:
    """Check the station numbers (N,): they need an unknown base, and enough poses to fit at each station.

    Raises `CalibrationError` if these are missing.
    """
    if sample.point is not None or not base:
        raise CalibrationError(
            "several stations take positions or poses in a measuring frame, and a base that is unknown"
        )
    found = _numbered("station", station, len(sample), use, must_fit=True)
    few = np.flatnonzero(np.bincount(found[use]) < _MIN_AT_STATION)
    if few.size:
        raise CalibrationError(
            f"station {int(few[0])} (from 0) has fewer than {_MIN_AT_STATION} poses to fit, which do not show where "
            "the instrument stood: measure more from there, leave its poses out, or fit a larger share of them"
        )
    return found


def checked_load(load: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
    """Check that the load of the joints (N, n) is finite and of the shape of the joint positions.

    Raises `CalibrationError` if it is not, or is missing.
    """
    if load is None:
        raise CalibrationError("compliance needs what each joint holds against gravity: give load, or leave it out")
    load = np.asarray(load, dtype=np.float64)
    if load.shape != shape:
        raise CalibrationError(f"load has shape {load.shape}, not {shape} as the joint positions")
    _check_numbers("load", load)
    return load


def _of_poses(q: FloatArray, measured: FloatArray) -> Sample:
    if measured.ndim != 2 or measured.shape[1] not in (3, 7) or measured.shape[0] != q.shape[0]:
        raise CalibrationError(f"measurements have shape {measured.shape}, not ({q.shape[0]}, 3) or ({q.shape[0]}, 7)")
    _check_numbers("measurements", measured)
    if measured.shape[1] == 3:
        return Sample.of(q, measured)
    quaternion = measured[:, 3:]
    length = np.linalg.norm(quaternion, axis=1)
    wrong = np.abs(length - 1.0) > _UNIT_QUATERNION
    if wrong.any():
        i = int(wrong.argmax())
        raise CalibrationError(f"the quaternion of pose {i} (from 0) has length {length[i]:.6g}, not 1")
    return Sample.of(q, measured[:, :3], Rotation.from_quat(quaternion).as_matrix())


def _check_numbers(what: str, values: FloatArray) -> None:
    broken = ~np.isfinite(values).all(axis=1)
    if broken.any():
        raise CalibrationError(f"{what} of pose {int(broken.argmax())} (from 0) are not finite: leave the pose out")
    huge = (np.abs(values) > MAX).any(axis=1)
    if huge.any():
        raise CalibrationError(
            f"{what} of pose {int(huge.argmax())} (from 0) are beyond {MAX:g} m or rad: leave the pose out"
        )


def _numbered(what: str, numbers: IntArray, count: int, use: BoolArray, *, must_fit: bool) -> IntArray:
    found = np.asarray(numbers)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise CalibrationError(f"{what} numbers have shape {found.shape} and type {found.dtype}, not ({count},) whole")
    present = np.unique(found)
    if not np.array_equal(present, np.arange(present.size)):
        raise CalibrationError(f"{what} numbers must run from 0 without a gap, not {present.tolist()}")
    missing = np.setdiff1d(present, found[use])
    if must_fit and missing.size:
        raise CalibrationError(f"{what} {int(missing[0])} (from 0) has no pose to fit: leave its poses out")
    return found.astype(np.int64)


def check_excluded(model: ErrorModel, settings: CalibrationSettings) -> None:
    """Check that excluded parameters are of the arm; raises `CalibrationError`.

    An estimated frame or point has no nominal value: it would be held where the nominal arm fits best, as if exact.
    """
    for name in settings.excluded:
        if name not in model.replaced:
            _index_of_arm(model, name, "excluded", "which has no nominal value to be held at")


def prior_deviations(model: ErrorModel, settings: CalibrationSettings) -> FloatArray | None:
    """Return the prior standard deviations (P,) of a model's errors, infinite without a prior; None without any.

    Raises `CalibrationError` if `priors` names a parameter that the arm does not have.
    """
    by_unit = {"m": settings.prior_length, "rad": settings.prior_angle}
    found = np.array([by_unit.get(unit) or np.inf for unit in model.units])
    found[~model.of_arm] = np.inf
    for name, std in settings.priors:
        found[_index_of_arm(model, name, "priors", "which only the measurements show")] = std
    return found if np.isfinite(found).any() else None


def _index_of_arm(model: ErrorModel, name: str, what: str, why: str) -> int:
    """Return the index of a parameter of the arm; `CalibrationError` for one of a frame or point, or an unknown one."""
    try:
        k = model.index(name)
    except ValueError as error:
        raise CalibrationError(f"{what}: {error}") from None
    if model.priority[k] == FRAME:
        raise CalibrationError(
            f"{what}: {name} is not of the arm but of a frame or point, {why}: leave it out, or take base or tool as "
            "known instead"
        )
    return k

"""A calibrated arm on measurements that it was not fitted to, such as of another day, instrument or tool."""

from dataclasses import replace

import numpy as np

from rt_core.calibration.error_model import Targets, error_model
from rt_core.calibration.frames import with_fitted_frames
from rt_core.calibration.geometry import Geometry
from rt_core.calibration.input_checks import checked_load, checked_sample
from rt_core.calibration.repeats import distinct_postures, merged
from rt_core.calibration.result import Accuracy, Calibration, Errors
from rt_core.calibration.sample import Contacts, Distances
from rt_core.calibration.settings import CalibrationError, CalibrationSettings
from rt_core.types import FloatArray


def errors_elsewhere(
    found: Calibration, q: FloatArray, measured: FloatArray | Contacts | Distances, settings: CalibrationSettings,
    load: FloatArray | None = None,
) -> Accuracy:  # fmt: skip
    """Return the errors of the nominal and of the calibrated arm at postures `q` (N, n), base and tool fitted anew.

    Arguments as for `calibrate`.  Only the arm's own errors are carried over, so that table may have another frame,
    tool or fixed points. Raises `CalibrationError` if the measurements are broken, or too few for base and tool.
    """
    nominal = found.model.geometry
    sample, _ = checked_sample(nominal, q, measured, None)
    joints, (rotation, translation) = found.model.joints(found.x)
    corrected = Geometry("placements", joints=joints, tip_rotation=rotation, tip_translation=translation)
    deflected = sample.q
    if found.model.compliance:
        deflected = sample.q - checked_load(load, sample.q.shape) * found.model.compliances(found.x)
    group = distinct_postures(sample.q, sample.point)
    residuals = []
    for geometry, its in ((nominal, sample.q), (corrected, deflected)):
        model = error_model(
            geometry, base=sample.point is None, orientation=sample.width == 6,
            targets=Targets(points=sample.points, offset=sample.length is not None),
        )  # fmt: skip
        one = merged(replace(sample, q=its, cosine=np.cos(its), sine=np.sin(its)), group)
        frames = int((~model.of_arm).sum())
        if len(one) * one.width <= frames:
            raise CalibrationError(
                f"{len(one)} distinct postures give {len(one) * one.width} equations for the {frames} of base "
                f"and tool: check with at least {frames // one.width + 1}"
            )
        model = with_fitted_frames(model, one, settings, lambda: None)
        residuals.append(model.residual(one, np.zeros(model.size)))
    return Accuracy(len(sample), Errors.of(residuals[0]), Errors.of(residuals[1]), len(one))

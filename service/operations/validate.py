"""Validation of a model file, with rigid or elastic joints, on a recording."""

from drivers.files.recordings.recording import Recording, Span
from rt_core.identification.preprocess import SignalSettings
from service.models.document import ModelFile
from service.models.origin import Dataset
from service.operations.elastic.arm import arm_rows
from service.operations.identify import Validation, validate_recording


def validate_model(
    model: ModelFile, recording: Recording, settings: SignalSettings, span: Span | None = None,
    fit_error: float | None = None, *, both_encoders: bool = False,
) -> Validation:  # fmt: skip
    """Predict the torque of a span of a recording, and compare, as `validate_recording` does; `DataError` if it cannot.

    With `both_encoders` a model with rigid joints has the rows of one with elastic joints.
    """
    robot, rows = model.robot.model, None
    if model.springs or both_encoders:
        prepared, _ = arm_rows(recording, robot, settings, span, fit=False)
        rows = prepared.rows["both" if model.springs else "link"]
    data, temperatures = Dataset(recording, model.robot, settings, span), model.temperatures
    return validate_recording(data, model.base, model.theta, fit_error=fit_error, temperatures=temperatures, rows=rows)

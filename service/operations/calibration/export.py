"""Export of a calibrated arm as a URDF, and as a table of Denavit-Hartenberg rows."""

from dataclasses import replace

from rt_core.calibration.result import Calibration
from rt_core.model.robot import RobotModel
from rt_core.model.urdf_writer import urdf_from_model
from service.operations.calibration.document import base_frame

_DH_COLUMNS = ("a", "alpha", "d", "theta", "beta")


def calibrated_urdf(model: RobotModel, found: Calibration) -> str:
    """Return the URDF of the calibrated arm; its tip is the measured frame."""
    joints, (rotation, translation) = found.model.joints(found.x)
    corrected = replace(model, joints=joints, tip_rotation=rotation, tip_translation=translation)
    comment = f"{model.name}, calibrated; tip_link is the measured frame"
    if base_frame(found) == "joint1":
        comment += "; the base frame is where the nominal zero and height of joint 1 put it, not the robot's own"
    return urdf_from_model(corrected, model.inertial, model.dynamics, comment=comment)


def calibrated_dh(found: Calibration) -> str | None:
    """Return the table of the calibrated rows [m] and [rad], comma-separated; None for an arm without such rows.

    Rows are products in the order of `docs/calibration.md`, with Hayati's `beta`. Comments before them have the units,
    what was held at nominal or comes from priors, and base and tool, row by row.
    """
    geometry = found.model.geometry
    if not geometry.rows:
        return None
    value = dict(zip(found.model.names, found.model.nominal + found.x, strict=True))
    fitted = set(found.free)
    arm = [
        name for name in value if "_" not in name and name[-1].isdigit() and name.rstrip("0123456789") in _DH_COLUMNS
    ]
    lines = [
        f"# {geometry.convention} rows; a and d in m, alpha, theta and beta in rad",
        f"# held at nominal: {', '.join(name for name in arm if name not in fitted) or 'none'}",
    ]
    carried = [p.name for p in found.parameters if p.status == "prior" and p.name in arm]
    if carried:
        lines.append(f"# from priors, not from the poses: {', '.join(carried)}")
    for which, where in (("base", "in the measuring frame"), ("tool", "beyond the last row")):
        lines.append(f"# {which} {where}, rotation and translation [m]:")
        rotation, translation = found.model.frame(which, found.x)
        lines += [
            f"#   {' '.join(repr(float(v)) for v in (*R, t))}" for R, t in zip(rotation, translation, strict=True)
        ]
    lines.append(",".join(("joint", "convention", *_DH_COLUMNS)))
    for k, row in enumerate(geometry.rows, 1):
        nominal = {"a": row.a, "alpha": row.alpha, "d": row.d, "theta": row.theta, "beta": 0.0}
        values = [value.get(f"{name}{k}", nominal[name]) for name in _DH_COLUMNS]
        lines.append(",".join((row.name, geometry.convention, *(repr(float(v)) for v in values))))
    return "\n".join(lines) + "\n"

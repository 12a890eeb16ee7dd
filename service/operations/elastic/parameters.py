"""Parameters of the identification of an elastic joint."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from service.operations.kind import Parameters, read_parameters
from service.operations.parameter_types import ROBOT, SPAN, NotNegative, Reference, RobotText, SpanText, option

_GROUP = "elastic joint (with --model elastic_joint; also --robot, --span, --cutoff, --min-velocity, -o, --report)"
Estimated = Literal["estimate"]
Lag = Estimated | Annotated[float, Field(ge=-0.02, le=0.02)]
_Speed = Annotated[float, Field(ge=1e-6, le=1e6)]
_Drive = Annotated[float, Field(ge=-1e6, le=1e6)]


class ElasticJointJob(Parameters):
    """Joint, recording and drive, and what to fit.

    `joint` is a name, or a number from 1 on. `gear_ratio`, `torque_constant` (motor side, N*m/A) and `rotor_inertia`
    (motor side, kg*m^2) come from the robot file by default. `sensor`: `tau` is a torque sensor behind the spring;
    otherwise it is the motor's torque, and used only without a `current`. `omega1` and `omega_s` are the velocity
    constants of stage full, on the motor's side [rad/s].
    """

    recording: Reference
    joint: Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=1)] = option(
        ..., "name, or number from 1 on, or all", "J", _GROUP
    )
    robot: RobotText | None = option(None, ROBOT, "R")
    gear_ratio: _Drive | None = option(None, "negative if the motor turns against the joint", "N", _GROUP)
    torque_constant: _Drive | None = option(None, "of the motor [N*m/A]", "KM", _GROUP)
    rotor_inertia: Annotated[float, Field(ge=0.0, le=1e4)] | None = option(
        None, "motor side [kg*m^2]; then all motion counts", "J_IN", _GROUP
    )
    sensor: bool = option(False, "tau is a torque sensor behind the spring", group=_GROUP)
    stage: Literal["stiffness", "coulomb", "viscous", "full"] = option("viscous", "friction", group=_GROUP)
    cubic: bool = option(True, "the spring's k2, not left out", flag="--linear", group=_GROUP, value=False)
    span: SpanText | None = option(None, SPAN, "A:B")
    lag: Lag = option("estimate", "how late the link encoder is", "S", _GROUP)
    zero: Estimated | Annotated[float, Field(ge=-1e4, le=1e4)] = option(
        "estimate", "zero of the deflection", "RAD", _GROUP
    )
    omega1: Estimated | _Speed = option("estimate", "full: of C1*tanh(v/W), motor side [rad/s]", "W", _GROUP)
    omega_s: Estimated | _Speed = option("estimate", "full: of C2*v*exp(-v/W), motor side [rad/s]", "W", _GROUP)
    cutoff_hz: float = option(10.0, "low-pass", "HZ", flag="--cutoff", ge=0.01, lt=1e6)
    min_velocity: NotNegative | None = option(None, "leave out slower samples", "V")
    smoothing: NotNegative = option(0.0, "eps of tanh(v/eps) in place of the sign [rad/s]", "V", _GROUP)


def read_elastic_joint(values: Mapping[str, Any]) -> ElasticJointJob:
    """Check parameters given as plain JSON values; `OperationError` names every field that is wrong."""
    return read_parameters("elastic_joint", ElasticJointJob, values)

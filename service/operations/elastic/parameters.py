"""Parameters of the identification of an elastic joint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from service.operations.kind import Parameters, read_parameters
from service.operations.parameter_types import NotNegative, Reference, RobotText, SpanText


class ElasticJointJob(Parameters):
    """Joint, recording and drive, and what to fit.

    `joint` is a name, or a number from 1 on. `gear_ratio`, `torque_constant` (motor side, N*m/A) and `rotor_inertia`
    (motor side, kg*m^2) come from the robot file by default. `sensor`: `tau` is a torque sensor behind the spring;
    otherwise it is the motor's torque, and used only without a `current`. `omega1` and `omega_s` are the velocity
    constants of stage full, on the motor's side [rad/s].
    """

    recording: Reference
    joint: Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=1)]
    robot: RobotText | None = None
    gear_ratio: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    torque_constant: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    rotor_inertia: Annotated[float, Field(ge=0.0, le=1e4)] | None = None
    sensor: bool = False
    stage: Literal["stiffness", "coulomb", "viscous", "full"] = "viscous"
    cubic: bool = True
    span: SpanText | None = None
    lag: Literal["estimate"] | Annotated[float, Field(ge=-0.02, le=0.02)] = "estimate"
    zero: Literal["estimate"] | Annotated[float, Field(ge=-1e4, le=1e4)] = "estimate"
    omega1: Literal["estimate"] | Annotated[float, Field(ge=1e-6, le=1e6)] = "estimate"
    omega_s: Literal["estimate"] | Annotated[float, Field(ge=1e-6, le=1e6)] = "estimate"
    cutoff_hz: Annotated[float, Field(ge=0.01, lt=1e6)] = 10.0
    min_velocity: NotNegative | None = None
    smoothing: NotNegative = 0.0


def read_elastic_joint(values: Mapping[str, Any]) -> ElasticJointJob:
    """Check parameters given as plain JSON values; `OperationError` names every field that is wrong."""
    return read_parameters("elastic_joint", ElasticJointJob, values)

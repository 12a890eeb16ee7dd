"""Configuration of an arm behind a TwinCAT PLC: `[arm.driver]` with `kind = "ads"`."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from drivers.files.table import Table

Side = Literal["motor", "joint"]
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
NetId = Annotated[str, Field(pattern=rf"^{_OCTET}(\.{_OCTET}){{5}}$")]
Name = Annotated[str, Field(min_length=1, max_length=31)]


@dataclass(frozen=True)
class Target:
    """Addresses of both ends of a connection."""

    net_id: str  # AMS Net ID of the controller
    port: int = 851  # AMS port of the PLC
    host: str = ""  # name or IPv4 address; empty: the first four numbers of the Net ID
    local_net_id: str = ""  # of this computer; empty: its IP address and ".1.1"
    timeout_ms: float = 500.0  # of one request

    @property
    def address(self) -> str:
        """Name or address to connect to."""
        return self.host or ".".join(self.net_id.split(".")[:4])

    def __str__(self) -> str:
        return f"{self.net_id}:{self.port}"


class AxisTable(Table):
    """`[[axis]]`: the axis of one joint, and its units."""

    joint: Annotated[str, Field(min_length=1)]
    name: Name | None = None  # of the axis in the PLC; the one at this place in its list if left out
    # position, and velocity in the same unit a second
    unit: Literal["rad", "mrad", "deg", "rev", "m", "cm", "mm", "um"] = "rad"
    side: Side = "joint"  # where position and velocity are counted
    gear_ratio: PositiveFloat = 1.0  # motor turns a joint turn
    sign: Literal[-1, 1] = 1  # -1: the axis counts against the joint
    offset_rad: float = 0.0  # homing: q = sign * (axis' position on the joint side - offset_rad); [m] of a slide
    motor_unit: Literal["rad", "deg", "rev"] = "rad"  # of the second encoder
    torque_unit: Literal["Nm", "mNm", "N", "percent", "permille"] = "Nm"  # parts of rated_torque_nm
    torque_side: Side = "motor"
    rated_torque_nm: PositiveFloat | None = None
    current_unit: Literal["A", "mA", "percent", "permille"] = "A"  # parts of rated_current_a
    rated_current_a: PositiveFloat | None = None
    position_min_rad: float | None = None  # commands outside are refused
    position_max_rad: float | None = None
    velocity_max_rad_s: PositiveFloat | None = None  # steps of the commanded position above it are refused

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for unit, rated in (("torque_unit", "rated_torque_nm"), ("current_unit", "rated_current_a")):
            if getattr(self, unit) in ("percent", "permille") and getattr(self, rated) is None:
                raise ValueError(f"joint {self.joint!r}: {unit} = {getattr(self, unit)!r} needs {rated}")
        low, high = self.position_min_rad, self.position_max_rad
        if low is not None and high is not None and low >= high:
            raise ValueError(f"joint {self.joint!r}: position_min_rad is not below position_max_rad")
        if self.side == "motor" and self.unit in ("m", "cm", "mm", "um"):
            raise ValueError(f'joint {self.joint!r}: side = "motor" needs a unit of angle, not {self.unit!r}')
        return self


class AdsConfig(Table):
    """`[arm.driver]` with `kind = "ads"`."""

    made_by: ClassVar[str] = ".driver:AdsDriver"  # relative to this package
    kind: Literal["ads"] = "ads"
    net_id: NetId  # AMS Net ID of the controller, such as "5.80.201.232.1.1"
    host: Annotated[str, Field(pattern=r"^\S+$")] | None = None  # the first four numbers of net_id if left out
    port: Annotated[int, Field(ge=1, le=65535)] = 851  # AMS port of the PLC runtime
    local_net_id: NetId | None = None  # of this computer; its IP address and ".1.1" if left out
    variables: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")] = "GVL_Theta"  # global variable list of FB_Theta
    transfer: Literal["poll", "notification"] = "poll"  # how blocks come; lost notifications are polled for
    poll_ms: Annotated[float, Field(ge=1.0, le=1000.0)] = 10.0  # longest time between two looks at the PLC
    timeout_ms: Annotated[float, Field(ge=20.0, le=5000.0)] = 500.0  # of one request
    reconnect_max_s: Annotated[float, Field(ge=0.1, le=60.0)] = 2.0  # longest wait between two tries
    mode: Literal["csp", "none"] = "csp"  # "none": listen, never enable
    lead_ms: Annotated[float, Field(ge=5.0, le=2000.0)] = 100.0  # from a frame to the cycle that its command is for
    decoupled: bool = False  # axes are joints though motors of the arm turn with more than one: the PLC sees to it
    enable: bool = False  # switch the axes on at start
    enable_timeout_ms: Annotated[float, Field(gt=0.0, le=7000.0)] = 5000.0  # an arm has to be armed within 8 s
    axis: Annotated[list[AxisTable], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for what in ("joint", "name"):
            names = [getattr(axis, what) for axis in self.axis if getattr(axis, what) is not None]
            for name, count in Counter(str(name).lower() for name in names).items():
                if count > 1:
                    raise ValueError(f"{what} {name!r} is given to {count} axes")
        if any(axis.name is None for axis in self.axis) and any(axis.name is not None for axis in self.axis):
            raise ValueError("name is given to some axes only; give it to all or to none")
        if self.enable and self.mode == "none":
            raise ValueError('enable = true needs mode = "csp"')
        return self

    @property
    def target(self) -> Target:
        """Addresses of the connection."""
        return Target(self.net_id, self.port, self.host or "", self.local_net_id or "", self.timeout_ms)

"""Units of logs, and their conversion to SI."""

import difflib
import math
from dataclasses import dataclass

_TURN = 2.0 * math.pi

#: Quantity -> unit -> (factor, offset): SI value = factor * value + offset.
UNITS: dict[str, dict[str, tuple[float, float]]] = {
    "angle": {"rad": (1.0, 0.0), "mrad": (1e-3, 0.0), "deg": (_TURN / 360.0, 0.0), "rev": (_TURN, 0.0)},
    "length": {"m": (1.0, 0.0), "cm": (1e-2, 0.0), "mm": (1e-3, 0.0), "um": (1e-6, 0.0)},
    "angular velocity": {
        "rad/s": (1.0, 0.0), "mrad/s": (1e-3, 0.0), "deg/s": (_TURN / 360.0, 0.0), "rev/s": (_TURN, 0.0),
        "rpm": (_TURN / 60.0, 0.0),
    },
    "velocity": {"m/s": (1.0, 0.0), "cm/s": (1e-2, 0.0), "mm/s": (1e-3, 0.0)},
    "torque": {"N*m": (1.0, 0.0), "mN*m": (1e-3, 0.0), "cN*m": (1e-2, 0.0), "kN*m": (1e3, 0.0)},
    "force": {"N": (1.0, 0.0), "mN": (1e-3, 0.0), "kN": (1e3, 0.0)},
    "current": {"A": (1.0, 0.0), "mA": (1e-3, 0.0)},
    "temperature": {"degC": (1.0, 0.0), "K": (1.0, -273.15), "degF": (5.0 / 9.0, -160.0 / 9.0)},
    "time": {"s": (1.0, 0.0), "ms": (1e-3, 0.0), "us": (1e-6, 0.0), "ns": (1e-9, 0.0), "min": (60.0, 0.0)},
}  # fmt: skip

#: Other spellings.
_ALIASES = {
    "Nm": "N*m", "N.m": "N*m", "mNm": "mN*m", "cNm": "cN*m", "kNm": "kN*m", "°": "deg", "°/s": "deg/s", "dps": "deg/s",
    "degree": "deg", "degrees": "deg", "radian": "rad", "radians": "rad", "turn": "rev", "rps": "rev/s",
    "rev/min": "rpm", "1/min": "rpm", "°C": "degC", "C": "degC", "°F": "degF", "µs": "us", "µm": "um",
}  # fmt: skip

#: Channel -> quantities of its unit, of a revolute and of a prismatic joint where they differ.
CHANNEL_QUANTITIES: dict[str, tuple[str, ...]] = {
    "q": ("angle", "length"), "dq": ("angular velocity", "velocity"), "current": ("current",),
    "tau": ("torque", "force"), "q_motor": ("angle",), "temperature": ("temperature",), "setpoint": ("angle", "length"),
}  # fmt: skip


class UnitError(ValueError):
    """An unknown unit, or one of the wrong quantity."""


@dataclass(frozen=True)
class Unit:
    """A unit: SI value = factor * value + offset."""

    name: str
    quantity: str
    factor: float
    offset: float

    @property
    def joint_unit(self) -> str | None:
        """Unit of position of the joint, "rad" or "m"; None if the quantity does not determine it."""
        if self.quantity in ("angle", "angular velocity", "torque"):
            return "rad"
        return "m" if self.quantity in ("length", "velocity", "force") else None


def find_unit(text: str, quantities: tuple[str, ...]) -> Unit:
    """Find a unit of `quantities`; raises `UnitError` with the valid ones."""
    name = text.strip().replace(" ", "").replace("·", "*").replace("⋅", "*").replace("μ", "µ")
    name = _ALIASES.get(name, name)
    for quantity in quantities:
        if name in UNITS[quantity]:
            return Unit(name, quantity, *UNITS[quantity][name])
    fitting = [unit for quantity in quantities for unit in UNITS[quantity]]
    for quantity, units in UNITS.items():
        if name in units:
            raise UnitError(
                f"unit {text!r} is one of {quantity}; here a unit of {' or '.join(quantities)} is needed "
                f"({', '.join(fitting)})"
            )
    if name in ("V", "mV", "%", "counts", "inc", "ticks"):
        raise UnitError(
            f"unit {text!r} needs a factor to become {' or '.join(quantities)}: give `scale` and, as `unit`, "
            f"the unit of the scaled value ({', '.join(fitting)})"
        )
    close = difflib.get_close_matches(name, fitting, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UnitError(f"unit {text!r} is not known; {hint}known are {', '.join(fitting)}")

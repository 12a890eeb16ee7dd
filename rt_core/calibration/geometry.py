"""Nominal geometry of an arm for a calibration."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rt_core.model.dh import DhRow
from rt_core.model.robot import Joint, RobotModel
from rt_core.types import FloatArray

Convention = Literal["dh", "mdh", "placements"]


@dataclass(frozen=True)
class Geometry:
    """Nominal geometry of a serial arm, as in its description."""

    # standard DH, modified (Craig) DH, or ("placements") a placement and an axis for each joint, as in a URDF
    convention: Convention
    rows: tuple[DhRow, ...] = ()  # for "dh" and "mdh"
    joints: tuple[Joint, ...] = ()  # for "placements"
    # (3, 3), of the measured frame in the last frame of the convention
    tip_rotation: FloatArray = field(default_factory=lambda: np.eye(3))
    tip_translation: FloatArray = field(default_factory=lambda: np.zeros(3))  # (3,), likewise [m]

    def __post_init__(self) -> None:
        """Check the convention and that it has joints, and only its own; raise `ValueError`."""
        given, other = (self.joints, self.rows) if self.convention == "placements" else (self.rows, self.joints)
        if self.convention not in ("dh", "mdh", "placements"):
            raise ValueError(f"unknown convention {self.convention!r}; known: dh, mdh, placements")
        if not given or other:
            wanted = "joints" if self.convention == "placements" else "rows"
            raise ValueError(f"convention {self.convention!r} takes {wanted}, at least one, and nothing else")

    @classmethod
    def from_rows(cls, rows: Sequence[DhRow], convention: Literal["dh", "mdh"]) -> "Geometry":
        """Return the geometry of a DH table, measured at its last frame."""
        return cls(convention, rows=tuple(rows))

    @classmethod
    def from_model(cls, model: RobotModel) -> "Geometry":
        """Return the geometry of a robot by placements, measured at its tip."""
        return cls(
            "placements", joints=model.joints, tip_rotation=model.tip_rotation, tip_translation=model.tip_translation
        )

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.rows) or len(self.joints)

    @property
    def revolute(self) -> tuple[bool, ...]:
        """Whether each joint turns."""
        return tuple(joint.kind == "revolute" for joint in (self.rows or self.joints))

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints."""
        return tuple(joint.name for joint in (self.rows or self.joints))

"""Checks of an arm before its dynamics are identified: signs, units, friction, torque constants.

Start with `profiles`: motions along a path and back, where gravity, Coriolis and inertia torque are the same both ways
and friction changes sides.  In the order of commissioning: `at_rest` (signals of a resting arm), `joint_check` (signs
and units), `gravity_check` with `gravity_terms` and `mirror_images` (torque against the gravity of the description),
`friction_sweep` and `friction_law` (friction over speed), `bidirectional` and `torque_constant` (torque constants from
a known payload).  Checks return a `findings.Finding`.
"""

__all__ = [
    "at_rest", "bidirectional", "findings", "friction_law", "friction_sweep", "gravity_check", "gravity_terms",
    "joint_check", "mirror_images", "profiles", "torque_constant",
]  # fmt: skip

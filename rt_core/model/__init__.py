"""Robot geometry, inverse and forward dynamics, regressor, friction laws and base parameters.

Start with `robot` (the internal form of an arm), which `urdf` and `dh` build, and `urdf_writer`, `mjcf_writer` and
`sdf_writer` write.  `parameters` lists the standard parameters of an arm, `regressor` computes their columns from
states, and `base` reduces them to the base parameters that torque determines.  `regressor_adjoint` differentiates the
link columns by the states.

`friction` holds the friction laws, `temperature` and `ranges` the temperatures, speeds and loads at which they were
seen, and `inertia` the ten parameters of a link.  `dynamics` is recursive Newton-Euler, `forward` gives mass matrix and
accelerations, and `frames` places the links and relates two descriptions of one arm.
"""

__all__ = [
    "angles", "base", "dh", "dynamics", "forward", "frames", "friction", "inertia", "mjcf_writer", "parameters",
    "ranges", "regressor", "regressor_adjoint", "robot", "sdf_writer", "temperature", "urdf", "urdf_writer",
]  # fmt: skip

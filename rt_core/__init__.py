"""Identification numerics: NumPy arrays in, NumPy arrays out; no I/O, clock, logging, thread or socket.

Start with `model`: a robot as a serial chain, its regressor, base parameters and friction laws.  `identification` fits
such a model to recordings (`identify.identify` is the entry point), `online` updates it sample by sample, and `elastic`
does both for joints with a spring between motor and link.  `commissioning` finds signs, units and friction before there
is a model.  `excitation` designs motions for identification, `calibration` finds geometric errors, `safety` decides
whether an arm may move, and `hand_guiding` lets a person move it.

Below these stand `optimise` (bounded minimisation), `validation` (torque error per joint), `linear_algebra`,
`settings` (with bounds), `statistics`, `robust_loss`, `jit` with `kernel_cache` (how numba compiles and caches), and
`types`.  A package imports only from those below it; the order is in `pyproject.toml`.
"""

__all__ = [
    "calibration", "channels", "commissioning", "elastic", "excitation", "hand_guiding", "identification", "jit",
    "kernel_cache", "linear_algebra", "model", "online", "optimise", "robust_loss", "safety", "settings", "statistics",
    "types", "validation",
]  # fmt: skip

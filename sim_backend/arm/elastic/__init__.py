"""Kernels of arms with springs in their joints.

Where to start: `springs` holds an arm's springs, checks them, and finds the links' rest position; `stepper` is the
compiled loop over samples, the counterpart of `sim_backend.arm.stepper`; `layout` describes the arrays that both add
to those of a rigid arm.

Internally, `_motion` integrates over a substep through sticking and sliding, and `_gauss` takes one implicit step.
"""

__all__ = ["layout", "springs", "stepper"]

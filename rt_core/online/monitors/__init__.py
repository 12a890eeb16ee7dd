"""Monitors that compare an arm with its model while it moves.

- `drift` compares the online estimate and the residual with the model; `drift_kernels` are its kernels.
- `change` finds sudden changes.  Reading order: `residual_cusum` raises the alarm, `residual_evidence` sums what is
  needed to explain it, `change_hypotheses` compares the causes, `payload_estimate` fits a payload, `change_rules` says
  what a cause has to keep to, and `change_report` is the result.
- `trust` decides whether the online estimate can be believed, with `velocity` whether the velocities are those of the
  positions and `examination` what `frame_diagnosis` has found in its own recent frames; `supply` whether frames can be
  learned from.
- `stuck_encoder` finds encoders that stick, `temperatures` tracks the temperatures of the joints.
"""

__all__ = [
    "change", "change_hypotheses", "change_report", "change_rules", "drift", "drift_kernels", "examination",
    "frame_diagnosis", "payload_estimate", "residual_cusum", "residual_evidence", "stuck_encoder", "supply",
    "temperatures", "trust", "velocity",
]  # fmt: skip

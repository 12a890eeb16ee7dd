"""Diagnostics of a fit: what is not in the model, how far its intervals reach, and a verdict that rests on both.

Start with `diagnosis.diagnose`, which calls the others in their order.

- `row_filter` passes any signal of the recording through the filter, mask and decimation of the rows.
- `added_variables` tests for small errors of data or robot file by extra columns, `forms` for friction and springs.
- `alternatives` compares discrete ones: the gravity vector, the order and the sign of channels.
- `noise` estimates the noise that a perfect model would leave, `intervals` widens standard deviations to what disjoint
  blocks of the recording support.
"""

__all__ = ["added_variables", "alternatives", "diagnosis", "forms", "intervals", "noise", "row_filter"]

"""Operations: what jobs, commands and the public interface compute, from files to results.

Start with `identify` (a robot and a recording to a model, parameters and a recording to their validation; `validate`
does that with a model file); `payload`, `compare` and `elastic` are built the same way. `calibration` has the tables
and documents of a kinematic calibration, `comparators` networks for comparison, `hand_guiding_replay`, `true_arm` and
`trend` data for reports and simulation.

What a job needs besides: `kind` (parameters, outcome, parts), `workspace` (inputs, results, progress), `inputs`
(recordings, windows, robots), `parameter_types` and `errors`. Pages are made by `service.reports`.
"""

__all__ = [
    "calibration", "comparators", "compare", "elastic", "errors", "hand_guiding_replay", "identify", "inputs", "kind",
    "parameter_types", "payload", "trend", "true_arm", "validate", "workspace",
]  # fmt: skip

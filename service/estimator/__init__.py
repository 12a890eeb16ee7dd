"""The estimator: one process per arm that identifies it online, from frames to estimates, torques and events.

Start with `process`: `EstimatorProcess._on_frames` passes blocks of frames to all consumers (`_frame_consumer`), and
`_tick` serves requests.  `_saved_state` saves and restores all consumers.  `_rigid_estimate` is the one that feeds
`rt_core.online.OnlineEstimator`; `_active_model` is the model that it is compared with, and reports drift and sudden
changes.  Beside it run `_encoder_monitor` (stuck encoders; it rolls all back), `_breakaway` and `elastic_tracking`
(elastic joints, each an `_elastic_tracker`).

`_frame_buffer` keeps the latest frames, which jobs identify from (`_window_requests`), and which `_examiner` has
examined from time to time by `examination_process`; `_hand_guiding_model` and `_prior` answer requests of hand guiding
and of user interfaces.
"""

__all__ = ["elastic_tracking", "examination_process", "process"]

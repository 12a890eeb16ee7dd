"""Base of the daemon's processes: what acquisition, estimator, recorder, gateway, jobs and web have in common.

Start with `worker`: `Worker` is a process seen from inside (configuration, heartbeats, requests, events), and
`run_worker`, called by `entry`, turns a command line into the `main` of a role. A process that reads frames receives
them from `frame_subscriber`, which counts what is lost.

Helpers of one process: `realtime` (priorities), `resources` (memory, time slices, end with the parent), `thread_limits`
(of libraries), `bind` (public ports), `loop_statistics` (histograms of durations).

The supervisor's side of the same protocol is `service.supervisor`.
"""

__all__ = ["bind", "entry", "frame_subscriber", "loop_statistics", "realtime", "resources", "thread_limits", "worker"]

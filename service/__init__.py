"""The service: processes, sockets, storage and commands around the numerics.

Where to start: `config` reads the daemon's configuration. `supervisor` starts one process per task and restarts it if
needed; `worker` is the base of these processes. Frames flow from `acquisition` (with `motion`) to `estimator` and
`recorder`; `gateway` publishes them to clients, `web` serves the dashboard. `protocol` defines all messages,
`security` the keys and roles of clients, `io` the log and files.

Batch work: `operations` (identify, validate, calibrate, excite, ...) are use cases; `jobs` queues them, `cli` runs
them from the command line, `models` and `reports` hold their results. `commission`, `demo`, `doctor` and `deployment`
lead a user from a robot file to a running system. User programs import `client`; `bridge` feeds other viewers.
"""

__all__ = [
    "acquisition", "bridge", "cli", "client", "commission", "config", "demo", "deployment", "doctor", "estimator",
    "gateway", "io", "jobs", "models", "motion", "operations", "protocol", "recorder", "reports", "security",
    "supervisor", "web", "worker",
]  # fmt: skip

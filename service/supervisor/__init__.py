"""The supervisor of a daemon: starts, watches and restarts its processes, and answers on the control socket.

Start with `supervisor`: its loop holds everything together. `_worker_pool` keeps the processes running; one
`_worker_handle.WorkerHandle` each tracks state, heartbeats and restarts. `_control_server` receives the requests of
clients, `_routing` passes them to the process that answers, and `_events` keeps what the history gets. `daemon` runs a
supervisor from a configuration file, `launch` runs one as a child process.

Around the loop: `directories` (state lock, private sockets), `capabilities` (real-time rights for acquisitions alone),
`_systemd_notify` (watchdog).
"""

__all__ = ["capabilities", "daemon", "directories", "launch", "supervisor"]

"""The supervisor of a daemon: starts, watches and restarts its processes, and answers on the control socket.

Start with `supervisor`: its loop holds everything together. One `_worker_handle.WorkerHandle` per process tracks
state, heartbeats and restarts; `_control_server` receives the requests of clients, and `_routing` passes them to the
process that answers. `daemon` runs a supervisor from a configuration file, `launch` runs one as a child process.

Around the loop: `directories` (state lock, private sockets), `capabilities` (real-time rights for acquisitions alone),
`_preflight` (first check of the hardware), `_boot_counter` (epochs), `_systemd_notify` (watchdog).
"""

__all__ = ["capabilities", "daemon", "directories", "launch", "supervisor"]

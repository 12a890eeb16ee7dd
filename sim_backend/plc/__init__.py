"""A simulated PLC: an ADS server, and the PLC program behind it that samples and moves a simulated arm.

Where to start: `settings` reads the description of a PLC, `build` makes it, `server` puts it at a TCP address.

Bytes of a client go through `_session` (AMS packets, routes) and `_device` to `_services` (values, handles, symbols),
which work on `_memory`.  In each cycle `_plc` moves the arm (`_machine`), runs `_program`, which writes samples to
`_ring` and takes set positions from `_setpoint_buffers`, and sends notifications.
"""

__all__ = ["build", "server", "settings"]

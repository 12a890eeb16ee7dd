"""TwinCAT over ADS: samples that a PLC writes to a ring buffer, read in blocks with pyads.

Start with `layout`, the variables that PLC and driver exchange, then `driver`: its `read` fetches blocks when they are
due (`ring.stream`), writes heartbeat and set positions (`axes.axis_group`), and reconnects after failures. `config` has
the tables of `[arm.driver]`, `link` the connection and its symbols, `axes` commands to the axes, without I/O, `ring`
blocks to frames, and `diagnostics` is for `thetad ads`.  `structured_text` generates the PLC's types.
"""

__all__ = ["axes", "config", "diagnostics", "driver", "layout", "link", "ring", "structured_text"]

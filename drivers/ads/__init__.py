"""TwinCAT over ADS: samples that a PLC writes to a ring buffer, read in blocks with pyads.

Start with `layout`, the variables that PLC and driver exchange, then `driver`: its `read` fetches blocks when they are
due (`ring.stream`), writes heartbeat and set positions (`axes.axis_group`), and reconnects after failures.

- `config`: the tables of `[arm.driver]` with `kind = "ads"`.
- `link`: the connection, symbols, and the PLC program's variables by handle.
- `axes`: commands to the axes, without I/O.  `ring`: blocks to frames.
- `diagnostics`: for `thetad ads`.  `structured_text` generates the PLC's types from the layout.
"""

__all__ = ["axes", "config", "diagnostics", "driver", "layout", "link", "ring", "structured_text"]

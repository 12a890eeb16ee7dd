"""The EtherCAT master: interface, slaves, mailboxes, distributed clocks, cyclic exchange.

Only `master` and `bus` import pysoem.  Start with them: `master.Master` opens an interface and handles slaves, AL
states and registers; `bus.Bus` adds SDOs, distributed clocks and process data.

- Before a start: `interface` (link, permission, other masters), `bus_probe` (AL states read without a scan),
  `network` (found slaves against the configured ones).
- In operation: `exchange` (one cycle, and the accounting of cycles), `slave_recovery` (back to OP after a dropout).
- Data: `al_status`, `objects` (object dictionary), `eeprom` (SII).
"""

__all__ = [
    "al_status", "bus", "bus_probe", "eeprom", "exchange", "interface", "master", "network", "objects",
    "slave_recovery",
]  # fmt: skip

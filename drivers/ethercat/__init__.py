"""EtherCAT servo drives through pysoem: CoE, CiA 402, distributed clocks.

Start with `config` (the tables of `[arm.driver]`) and `driver`, whose `read` runs one cycle per frame: wait for the
deadline (`bus.exchange`), exchange process data, decode it (`drive.process_data`), step the drives
(`drive.drive_group`), and between two cycles check AL states and recover slaves (`bus.slave_recovery`).

- `bus`: the EtherCAT master, without knowledge of drives.
- `pdo`: layout of process data.  `drive`: CiA 402 drives on top of the bus.
- `diagnostics`: reading a bus that is not in operation, for `thetad ethercat`.
"""

__all__ = ["bus", "config", "diagnostics", "drive", "driver", "errors", "pdo"]

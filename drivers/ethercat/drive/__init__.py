"""CiA 402 drives on an EtherCAT bus: setup, scaling, state machine.

Start with `cia402.DriveControl`, which turns one drive's statuswords into controlwords.  `drive_group.DriveGroup`
holds one for each joint and enables, commands and stops an arm as a whole.

- `scaling`: between a drive's integers and SI units on the joint side.
- `process_data`: images of all drives to channels, controlwords and targets to images.
- `setup`: SDOs and PDO mapping of each drive in PRE-OP, before process data runs.
"""

__all__ = ["cia402", "drive_group", "process_data", "scaling", "setup"]

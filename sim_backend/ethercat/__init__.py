"""A simulated EtherCAT segment: slave controllers, their drives, and the server that answers frames.

Where to start: `settings` reads the description of a segment, `build` makes it, `server` puts it at a network
interface; `link` makes a pair of virtual interfaces.  `wire` names sizes, commands and flags of frames, `registers`
addresses and bits of a slave controller.

A frame goes through `_segment` (cables, clocks, due times) and `_datalink` (one kernel for all slaves, with `_access`
and `_clock`).  Its events reach `_controller`, one a slave: states (`_al_state`), mailbox (`_mailbox`, `_coe`), EEPROM
(`_sii`) and process data (`_pdo`).  `_machine` moves the arm, one `_axis` a drive.
"""

__all__ = ["build", "link", "registers", "server", "settings", "wire"]

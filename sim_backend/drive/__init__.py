"""Simulated servo drives, and arms that they move.

Where to start: `drive` (`Cia402Drive`: the CiA 402 state machine of one drive on its object dictionary) and
`drive_arm` (`DriveArm`: an arm moved by one command a drive and sample period).  EtherCAT machines join the two;
`commanded_driver` moves a `DriveArm` without a bus.

`motion` makes set values, stops and brake actions for `drive`, from the objects that `objects` names; `modes` has the
modes of operation; `sample` is what a `DriveArm` returns.
"""

__all__ = ["commanded_driver", "drive", "drive_arm", "modes", "motion", "objects", "sample"]

"""The demonstration behind `thetad demo`: the complete workflow once, compared with the truth.

Where to start: `demo` runs a daemon with a simulated arm through two motions, takes the online estimate, identifies
the recording in batch, and compares both with the arm's true parameters. `hardware` puts the arm behind simulated
EtherCAT drives or a simulated PLC.

It uses only the parts that a user has: configuration, client, operations and reports.
"""

__all__ = ["demo", "hardware"]

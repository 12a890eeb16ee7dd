"""The command `thetad`.

Where to start: `main` has the table of commands, imports the one that was given, runs it, and turns errors into one
line and an exit code. `_common` has exit codes, output and the texts of help, `_remote` requests to a daemon,
`_progress` a progress bar.

The commands by subject: `daemon` (run and watch it), `motion` (move an arm), `data` (recordings), `models` (identify,
validate, compare), `calibration` (kinematics), `jobs` (the queue), `hardware` (buses and simulated hardware).

`main.COMMANDS` names the module of each command; only that of the given command is imported.
"""

__all__ = ["calibration", "daemon", "data", "hardware", "jobs", "main", "models", "motion"]

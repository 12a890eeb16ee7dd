"""The command `thetad`.

Where to start: `main` builds the parser from one module per command, runs a command, and turns errors into one line
and an exit code. `_common` has exit codes and output, `_remote` requests to a daemon, `_progress` the progress bar.

The commands by subject: `daemon` (run and watch it), `motion` (move an arm), `data` (recordings), `models` (identify,
validate, compare), `calibration` (kinematics), `jobs` (the queue), `hardware` (buses and simulated hardware).

Every invocation imports every command module, so heavy imports belong inside functions.
"""

__all__ = ["calibration", "daemon", "data", "hardware", "jobs", "main", "models", "motion"]

"""Commands on the job queue of a daemon, and their parts used by other commands.

Where to start: `jobs` has the actions of `thetad jobs`; docs/jobs.md explains the queue. `values` parses what users
type (NAME=VALUE, job ids, durations, references to models and recordings), `wait` connects to a daemon and waits for
jobs with a progress line, `text` formats jobs and events. `_kinds` describes the kinds of jobs and their parameters,
without a daemon.
"""

__all__ = ["jobs", "text", "values", "wait"]

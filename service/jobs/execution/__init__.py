"""Execution of jobs: from a claimed job to a stored outcome.

Start with `executor`: it claims jobs, starts runs on a backend, keeps their leases and stores how they ended. `backend`
defines a backend and has the local one; `runner` is the program of a run, which only knows a folder with `spec.json`
and writes `outcome.json` (`spec`).

`progress` estimates the time left, and `code_version` identifies the code, so that parts of a job are combined only if
the same code has run them.
"""

__all__ = ["backend", "code_version", "executor", "progress", "runner", "spec"]

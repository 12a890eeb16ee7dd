"""Backend of jobs on a Dask cluster (optional dependency `distributed`); see docs/dask.md.

Start with `backend`: `DaskBackend` implements `service.jobs.execution.backend.Backend`.
`_cluster` keeps the connection
in a thread of its own, and checks the code version of every worker; `_worker` has the functions that workers call.

A worker starts the same runner as the local backend, in a process of its own, so that results are the same bytes.
"""

__all__ = ["backend"]

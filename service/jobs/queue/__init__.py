"""The queue of jobs: states, storage and operations; durable over kills and damaged files.

Start with `state`, which has the life of a job as pure functions. `store` keeps jobs, models, promotions and events in
one SQLite file, each row with a checksum (`_checked_row`); `queue` combines both: every operation is one transaction.
`_model_history` has the active model of each arm.

Files beside the queue are in `artifacts`, by their hash; `retention` decides what is deleted, and `salvage` recovers
the rows of a damaged file.
"""

__all__ = ["artifacts", "queue", "retention", "salvage", "state", "store"]

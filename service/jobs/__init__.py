"""Durable batch jobs: a queue in a file, and processes that run what is in it.

Start with `dispatch`, the jobs process: it opens the storage (`_job_storage`), answers requests (`_requests`), and lets
`execution` run jobs, each in a process of its own or on a cluster (`dask`). `queue` has the states of a job and their
storage, `kinds` what a job of each kind does, and `references` how its parameters name recordings and models.

`_auto_identification` queues jobs by itself, on drift or on a schedule (`_triggers`), and sends each estimator its
active model. `budget` deletes old recordings, `_backup` copies everything, `_path_policy` checks paths of clients.
"""

__all__ = ["budget", "dask", "dispatch", "execution", "kinds", "queue", "references"]

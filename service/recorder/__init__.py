"""The recorder: one process per arm that writes its frames into MCAP files.

Everything is in `process`: `main` is the entry point that `service.worker` calls, and `Recorder` the loop.

Frames come from the acquisition through `service.worker.frame_subscriber`, and files are written by
`drivers.files.recordings`. Recording is switched by the verb `record`; a status message goes out every second.
Old files are deleted by the jobs process (`service.jobs.budget`), never here.
"""

__all__ = ["process"]

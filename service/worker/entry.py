"""Entry point of the processes under the supervisor: `python -m service.worker.entry ROLE ...`."""

from service.worker.worker import run_worker

if __name__ == "__main__":
    run_worker()

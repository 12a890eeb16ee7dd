"""Entry point of the processes under the supervisor: `python -m service.child ROLE ...`."""

from __future__ import annotations

from service.process import run_child

if __name__ == "__main__":
    run_child()

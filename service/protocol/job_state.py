"""States of a job, as queue and clients name them."""

from __future__ import annotations

from typing import Literal

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINISHED: tuple[State, ...] = ("succeeded", "failed", "cancelled")

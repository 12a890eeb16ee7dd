"""`[arm.realtime]`: how the acquisition is scheduled."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RealtimeConfig(BaseModel):
    """`[arm.realtime]`: of the acquisition process of a source that keeps a cycle."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    priority: int = Field(0, ge=0, le=98)  # of SCHED_FIFO; 0: ordinary scheduling
    processors: tuple[int, ...] | None = None  # numbers of the processors it may use; None: all
    lock_memory: bool = True  # no page of the process is ever swapped out
    stay_awake: bool = False  # no processor of the machine sleeps between two cycles, while this process lives

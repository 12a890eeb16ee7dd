"""The two files between the queue and a runner: what is to be done, and what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.operations.workspace import Input, JobError

FORMAT = "thetad-job/1"
SPEC_FILE = "spec.json"
OUTCOME_FILE = "outcome.json"
RESULTS_FOLDER = "results"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class InputEntry(_Table):
    """A file that the job reads, see `service.operations.workspace.Input`."""

    path: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str = ""

    @property
    def file(self) -> Input:
        """The file, for a workspace."""
        return Input(Path(self.path), self.sha256, self.name)


class Limits(_Table):
    """What a run may use: seconds of time, which the queue watches, and 10^6 bytes of memory, which the runner does."""

    seconds: Annotated[float, Field(gt=0.0)] | None = None
    memory_mb: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = None


class Spec(_Table):
    """What is to be done: all of a job, or `part` of it, or putting the results of its `parts` together."""

    format: Literal["thetad-job/1"]
    kind: str
    parameters: dict[str, Any]
    arm: str | None = None
    created: str
    inputs: dict[str, InputEntry] = {}
    part: dict[str, Any] | None = None
    parts: list[dict[str, Any]] | None = None
    limits: Limits = Limits()


def read_spec(folder: Path) -> Spec:
    """Read `FOLDER/spec.json`.

    Raises
    ------
    JobError
        It is not there, or not as it should be; the message names the field.
    """
    path = folder / SPEC_FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        spec = Spec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise JobError(f"{path}: {field}: {first['msg']}" if field else f"{path}: {first['msg']}") from None
    if spec.part is not None and spec.parts is not None:
        raise JobError(f"{path}: part and parts are both given; a run does one or puts all together")
    return spec


def write_outcome(folder: Path, outcome: dict[str, Any]) -> None:
    """Write `FOLDER/outcome.json`, which appears whole or not at all, and lasts."""
    from service.io.atomic_files import sync_folder, write_text

    write_text(folder / OUTCOME_FILE, json.dumps(outcome, allow_nan=False) + "\n")
    sync_folder(folder)

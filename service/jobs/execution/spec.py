"""Files between queue and runner: specification and outcome."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.operations.errors import OperationError
from service.operations.workspace import Input

Limit = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
FORMAT = "thetad-job/1"
SPEC_FILE = "spec.json"
OUTCOME_FILE = "outcome.json"
LOG_FILE = "log.txt"
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


class Spec(_Table):
    """Specification of a run: a whole job, a `part` of it, or the gathering of the results of its `parts`."""

    format: Literal["thetad-job/1"]
    kind: str
    parameters: dict[str, Any]
    arm: str | None = None
    created: str
    inputs: dict[str, InputEntry] = {}
    part: dict[str, Any] | None = None
    parts: list[dict[str, Any]] | None = None
    limits: dict[Literal["seconds", "memory_mb"], Limit | None] = {}  # `state.Limits`; each may be missing


def read_spec(folder: Path) -> Spec:
    """Read `FOLDER/spec.json`; `OperationError` names the field that is not as it should be."""
    path = folder / SPEC_FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OperationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        spec = Spec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise OperationError(f"{path}: {field}: {first['msg']}" if field else f"{path}: {first['msg']}") from None
    if spec.part is not None and spec.parts is not None:
        raise OperationError(f"{path}: part and parts are both given; a run does one or puts all together")
    return spec


def write_outcome(folder: Path, outcome: dict[str, Any]) -> None:
    """Write `FOLDER/outcome.json` atomically and durably."""
    from drivers.files.atomic_write import sync_folder, write_text

    write_text(folder / OUTCOME_FILE, json.dumps(outcome, allow_nan=False) + "\n")
    sync_folder(folder)

"""Workspace of a run: its inputs, a folder for its results, its progress, and its cancellation."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.operations.errors import OperationCancelledError, OperationError

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from service.models.document import ModelFile

#: Names of results, which become parts of paths and addresses.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Input:
    """An input file with its hash at submission, and its `name` in results, where a path could reveal the machine."""

    path: Path
    sha256: str
    name: str = ""

    @classmethod
    def of(cls, path: Path) -> Input:
        """Return a file as it is now."""
        with path.open("rb") as stream:
            return cls(path, hashlib.file_digest(stream, "sha256").hexdigest())

    @property
    def label(self) -> Path:
        """Name of the file in results."""
        return Path(self.name or self.path.name)


@dataclass
class Workspace:
    """The environment of one run."""

    folder: Path  # for the results; empty at the start, and used by this run alone
    created: str  # time of submission (ISO 8601, UTC); results carry it, so that a repeated run gives the same bytes
    arm: str | None = None  # of the daemon that the job concerns
    inputs: Mapping[str, Input] = field(default_factory=dict)  # by parameter
    report: Callable[[float, str], None] = lambda _share, _what: None  # takes the share done and the present step
    cancelled: Callable[[], bool] = lambda: False

    def progress(self, share: float, what: str) -> None:
        """Report progress, often: a cancelled job stops here (`OperationCancelledError`)."""
        if self.cancelled():
            raise OperationCancelledError
        self.report(min(max(share, 0.0), 1.0), what)

    def path(self, name: str) -> Path:
        """Return the path of the input of parameter `name`; `OperationError` if it is not what was submitted."""
        given = self.inputs.get(name)
        if given is None:
            raise OperationError(f"{name}: is not given")
        try:
            found = Input.of(given.path).sha256
        except OSError as error:
            raise OperationError(f"{name}: {given.path}: cannot be read: {error.strerror}") from error
        if found != given.sha256:
            raise OperationError(f"{name}: {given.path}: has changed since the job was submitted; submit it again")
        return given.path

    def recording(self, name: str = "recording") -> Recording:
        """Open the recording of parameter `name`: a file of the recorder, or a window of live frames."""
        from service.operations.inputs import open_recording

        return replace(open_recording(self.path(name)), path=self.inputs[name].label)

    def model(self, name: str = "model") -> ModelFile:
        """Open the model file of parameter `name`."""
        from service.models.document import load_model

        return replace(load_model(self.path(name)), path=self.inputs[name].label)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a result, such as `model.yaml`, atomically; raises `OperationError` unless the name is plain."""
        from drivers.files.atomic_write import write_bytes

        if PLAIN_NAME.fullmatch(name) is None:
            rule = "use letters, digits, '_', '.' and '-', starting with a letter or digit"
            raise OperationError(f"result {name!r}: {rule}")
        write_bytes(self.folder / name, content.encode() if isinstance(content, str) else content)

    def write_json(self, name: str, content: Any) -> None:
        """Write a result as JSON, with arrays as lists and NaN as null."""
        from service.protocol.json_values import json_values

        self.write(name, json.dumps(json_values(content), allow_nan=False, indent=1) + "\n")

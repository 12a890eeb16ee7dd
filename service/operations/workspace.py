"""What a running job works with: its inputs, a folder for its results, its progress, and word to stop."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drivers.files.recordings.recording import Recording
    from service.models.document import ModelFile

#: Names of results: they become parts of paths and of addresses.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class JobError(ValueError):
    """A job that cannot be done as it was asked for; to try again would not help."""


class JobCancelledError(Exception):
    """The job was told to stop."""


@dataclass(frozen=True)
class Input:
    """A file that a job reads, as it was when the job was submitted.

    `name` is what results call it, for its path may tell of the machine; the path's last part if left out.
    """

    path: Path
    sha256: str
    name: str = ""

    @property
    def label(self) -> Path:
        """What results call the file."""
        return Path(self.name or self.path.name)


@dataclass
class Workspace:
    """The surroundings of one run of a job.

    Attributes
    ----------
    folder : Path
        Where the results go; empty at the start, and the job's own.
    arm : str or None
        The arm of the daemon that the job concerns.
    created : str
        When the job was submitted (ISO 8601, UTC): the time that results carry, so that a repeated run gives the
        same bytes.
    inputs : mapping
        By parameter.
    tell : callable
        Takes the share that is done, 0 to 1, and what is being done.
    """

    folder: Path
    created: str
    arm: str | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    tell: Callable[[float, str], None] = lambda _share, _what: None
    cancelled: Callable[[], bool] = lambda: False

    def progress(self, share: float, what: str) -> None:
        """Report progress, often: this is also where a job that was cancelled stops (`JobCancelledError`)."""
        if self.cancelled():
            raise JobCancelledError
        self.tell(min(max(share, 0.0), 1.0), what)

    def path(self, name: str) -> Path:
        """Return the path of the input of parameter `name`; `JobError` if it is not what was submitted."""
        given = self.inputs.get(name)
        if given is None:
            raise JobError(f"{name}: is not given")
        try:
            with given.path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise JobError(f"{name}: {given.path}: cannot be read: {error.strerror}") from error
        if found != given.sha256:
            raise JobError(f"{name}: {given.path}: has changed since the job was submitted; submit it again")
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
        """Write a result, such as `model.yaml`; it appears whole or not at all; `JobError` unless the name is plain."""
        from service.io.atomic_files import write_bytes

        if PLAIN_NAME.fullmatch(name) is None:
            raise JobError(f"result {name!r}: use letters, digits, '_', '.' and '-', starting with a letter or digit")
        write_bytes(self.folder / name, content.encode() if isinstance(content, str) else content)

    def write_json(self, name: str, content: Any) -> None:
        """Write a result as JSON, with arrays as lists and NaN as null."""
        from service.protocol.json_values import plain

        self.write(name, json.dumps(plain(content), allow_nan=False, indent=1) + "\n")

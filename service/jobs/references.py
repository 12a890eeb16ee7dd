"""References of job parameters to recordings and models.

    a recording:  "/path/rec.mcap"   "live:60" (the arm's last 60 s)   "job:12" (the recording of job 12)
    a model:      "/path/model.yaml"   "active" (the arm's)   "job:12" (that job 12 makes)   "model:3fa9..." (kept)

A file is stored in the job with its present hash; a result that another job has yet to make, with that job's number.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.jobs._background import SOON_BYTES
from service.jobs._path_policy import PathPolicy
from service.jobs.queue.artifacts import ArtifactError, Artifacts, sha256_of
from service.jobs.queue.queue import Queue
from service.jobs.queue.state import Job, JobStateError
from service.operations.errors import OperationError

ACTIVE = "active"
#: First words of references that are not paths.
RECORDING_WORDS, MODEL_WORDS = ("live", "job"), (ACTIVE, "job", "model")
MODEL = "model.yaml"  # the result of a job that is a model
MAX_BYTES = 2_000_000_000  # of an input, which is read once for its hash
_MIN_WINDOW_S = 1.0


@dataclass
class Resolved:
    """Inputs of a new job; `live` maps parameters to the seconds of frames that have still to be saved."""

    inputs: dict[str, Any] = field(default_factory=dict)
    after: list[int] = field(default_factory=list)
    live: dict[str, float] = field(default_factory=dict)


def is_large(path: Path) -> bool:
    """Return whether reading a file takes too long while requests wait."""
    try:
        return SOON_BYTES < path.stat().st_size <= MAX_BYTES
    except (OSError, ValueError):
        return False  # `file_input` reports the error


def file_input(path: Path, name: str) -> dict[str, str]:
    """Return the input for a file with its present hash; raises `OperationError`."""
    if not path.is_absolute():
        raise OperationError(f"{name}: {path}: give the whole path, for the daemon works in another directory")
    try:
        path = path.resolve()
        if not path.is_file() or path.is_relative_to("/proc") or path.is_relative_to("/sys"):
            raise OperationError(f"{name}: {path}: {'is not a file' if path.exists() else 'no such file'}")
        if path.stat().st_size > MAX_BYTES:
            raise OperationError(f"{name}: {path}: is larger than {MAX_BYTES / 1e9:g} GB; give a shorter recording")
        return {"path": str(path), "sha256": sha256_of(path)}
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        raise OperationError(f"{name}: {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


class References:
    """Resolves references against a queue and its artifacts; paths of clients must satisfy `path_policy`."""

    def __init__(self, queue: Queue, artifacts: Artifacts, path_policy: PathPolicy) -> None:
        self.queue, self.artifacts, self.path_policy = queue, artifacts, path_policy

    def file_of(self, text: str, name: str, words: tuple[str, ...]) -> Path | None:
        """Return the file of a reference, None if it begins with one of `words`; raises `OperationError`."""
        word, colon, _ = text.partition(":")
        return None if word in words and (colon or text == ACTIVE) else self.path_policy.check(Path(text), name)

    def recording(self, text: str, name: str, arm: str | None, into: Resolved) -> None:
        """Resolve the recording parameter `name`; raises `OperationError`."""
        kind, colon, rest = text.partition(":")
        if kind == "live" and colon:
            if arm is None:
                raise OperationError(f"{name}: {text}: whose frames? Name an arm")
            into.live[name] = _seconds(rest, name, text)
        elif kind == "job" and colon:
            job = self._job(rest, name, text)
            given = job.inputs.get("recording")
            if given is None or "sha256" not in given:
                raise OperationError(f"{name}: {text}: that job has no recording")
            into.inputs[name] = dict(given)
        else:
            into.inputs[name] = file_input(self.path_policy.check(Path(text), name), name)

    def model(self, text: str, name: str, arm: str | None, into: Resolved) -> None:
        """Resolve the model parameter `name`; raises `OperationError`."""
        kind, colon, rest = text.partition(":")
        if text == ACTIVE:
            if arm is None:
                raise OperationError(f"{name}: {text}: the active model of which arm? Name one")
            active = self.queue.history.active(arm)
            if active is None:
                raise OperationError(f"{name}: arm {arm} has no active model; promote one, or name a file")
            into.inputs[name] = self.artifact(active, name)
        elif kind == "job" and colon:
            job = self._job(rest, name, text)
            if job.state in ("failed", "cancelled"):
                how = "failed" if job.state == "failed" else "was cancelled"
                raise OperationError(f"{name}: {text}: that job {how}" + (f": {job.reason}" if job.reason else ""))
            if job.state == "succeeded":
                self._made(job, name)
            into.inputs[name] = {"job": job.id}
            into.after.append(job.id)
        elif kind == "model" and colon:
            kept = self.queue.history.models() if len(rest) >= 4 else []
            found = {model.id for model in kept if model.id.startswith(rest)}
            if len(found) != 1:
                what = "several models begin so" if found else "no such model is kept"
                raise OperationError(f"{name}: {text}: {what}; `thetad models list` names them")
            into.inputs[name] = self.artifact(found.pop(), name)
        else:
            into.inputs[name] = file_input(self.path_policy.check(Path(text), name), name)

    def artifact(self, sha256: str, name: str) -> dict[str, str]:
        """Return the input for an artifact; raises `OperationError` if it is damaged or gone."""
        try:
            self.artifacts.verify(sha256)
        except ArtifactError as error:
            raise OperationError(f"{name}: {error}") from error
        return {"path": str(self.artifacts.path(sha256)), "sha256": sha256, "name": f"model {sha256[:12]}"}

    def at_start(self, job: Job) -> dict[str, Any]:
        """Return the inputs of a starting job, all as files; raises `OperationError`."""
        inputs = {}
        for name, given in job.inputs.items():
            if "job" not in given:
                inputs[name] = dict(given)
                continue
            maker = self._job(str(given["job"]), name, f"job:{given['job']}")
            inputs[name] = self.artifact(self._made(maker, name), name)
        return inputs

    def _made(self, job: Job, name: str) -> str:
        """Return the hash of the model that a job has made; raises `OperationError` if there is none."""
        results: Mapping[str, Any] = (job.outcome or {}).get("results") or {}
        if MODEL not in results:
            raise OperationError(f"{name}: job {job.id} made no model")
        return str(results[MODEL]["sha256"])

    def _job(self, number: str, name: str, text: str) -> Job:
        try:
            return self.queue.job(int(number))
        except (ValueError, OverflowError):
            raise OperationError(f"{name}: {text}: write job:NUMBER") from None
        except JobStateError as error:
            raise OperationError(f"{name}: {text}: {error}") from error


def _seconds(text: str, name: str, whole: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not _MIN_WINDOW_S <= seconds <= 1e5:
        raise OperationError(f"{name}: {whole}: write live:SECONDS, at least {_MIN_WINDOW_S:g}")
    return seconds

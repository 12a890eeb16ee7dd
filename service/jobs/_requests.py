"""Requests to the jobs process: checks the arguments of each verb, and answers or refuses."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from msgspec import to_builtins
from pydantic import Field, ValidationError

from drivers.files.table import StrictTable, describe
from service.config.load import Config
from service.io.state_file import FILE_NAME as STATE_FILE
from service.jobs._auto_identification import AutoIdentification, robot_text, springs_of
from service.jobs._backup import back_up
from service.jobs._job_storage import JobStorage
from service.jobs._path_policy import PathPolicy
from service.jobs._summary import details, iso, summary
from service.jobs.execution.executor import Executor
from service.jobs.kinds import find_kind
from service.jobs.queue.queue import QueueFullError, Submission
from service.jobs.queue.state import JobStateError, Limits
from service.jobs.queue.store import Model, StoreCorruptError, StoreError
from service.jobs.references import MODEL_WORDS, RECORDING_WORDS, References, Resolved, file_input, is_large
from service.operations.errors import OperationError
from service.operations.kind import Kind, Parameters
from service.protocol import job_replies as replies
from service.protocol.control import ControlError
from service.worker.worker import Worker

T = TypeVar("T")

_YEAR_S = 3.2e7
#: Parameters that name a robot.
_ROBOTS = ("robot", "prior")


class _Submit(StrictTable):
    kind: str
    parameters: dict[str, Any] = Field({})
    arm: str | None = None
    after: list[Annotated[int, Field(ge=1, lt=2**62)]] = Field([], max_length=1000)
    priority: int = Field(0, ge=-100, le=100)
    due_s: float = Field(0.0, ge=0.0, le=_YEAR_S)
    time_s: float | None = Field(None, ge=1.0, le=1e6)
    memory_mb: float | None = Field(None, ge=100.0, le=1e7)


class _OfArm(StrictTable):
    arm: str | None = None


class _Reidentify(_OfArm):
    promote: bool = True


class _Recent(StrictTable):
    states: list[replies.State] = Field([])
    arm: str | None = None
    kind: str | None = None
    limit: int = Field(100, ge=1, le=1000)


class _One(StrictTable):
    id: int = Field(ge=1, lt=2**62)


class _History(_OfArm):
    job: int | None = Field(None, ge=1, lt=2**62)
    limit: int = Field(200, ge=1, le=5000)
    after: int = Field(0, ge=0, lt=2**62)


class _Rollback(_OfArm):
    reason: str = Field("", max_length=500)


class _Backup(StrictTable):
    directory: str


class Requests:
    """Handlers of the requests; `reason` is why the queue cannot be used, while `storage` is None."""

    def __init__(self, worker: Worker, config: Config, auto_identification: AutoIdentification) -> None:
        self.worker, self.config, self.auto_identification = worker, config, auto_identification
        self.background = auto_identification.background
        self.backing_up = False  # nothing that the copy names may be deleted meanwhile
        self.storage: JobStorage | None = None
        self.executor: Executor | None = None
        self.reason = "the queue is not open yet"
        self.corrupt = ""  # damage of the queue's file that a request has found

    @property
    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Mapping[str, Any] | None]]:
        return {
            "submit": self._guarded(_Submit, self._submit),
            "reidentify": self._guarded(_Reidentify, self._reidentify), "jobs": self._guarded(_Recent, self._recent),
            "job": self._guarded(_One, self._job), "cancel": self._guarded(_One, self._cancel),
            "retry": self._guarded(_One, self._retry), "events": self._guarded(_History, self._events),
            "models": self._guarded(_OfArm, self._models), "robot": self._guarded(_OfArm, self._description),
            "rollback": self._guarded(_Rollback, self._rollback), "backup": self._guarded(_Backup, self._backup),
        }  # fmt: skip

    def _guarded(
        self, form: type[Any], handle: Callable[[Any, JobStorage], Any]
    ) -> Callable[[dict[str, Any]], Mapping[str, Any] | None]:
        """Check the arguments, refuse while there is no queue, and turn errors into refusals."""

        def answer(args: dict[str, Any]) -> Mapping[str, Any] | None:
            try:
                checked = form.model_validate(args)
            except ValidationError as error:
                raise ControlError("bad_argument", describe(error, form)) from error
            if self.storage is None:
                raise ControlError("unavailable", self.reason)
            with self._refusals():
                found = handle(checked, self.storage)
            return None if found is None else cast(Mapping[str, Any], to_builtins(found))

        return answer

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turn errors into refusals."""
        try:
            yield
        except StoreError as error:
            if isinstance(error, StoreCorruptError):
                self.corrupt = str(error)
            raise ControlError("unavailable", str(error)) from error
        except (JobStateError, ValueError) as error:  # of a file that a parameter names, such as a robot's
            raise ControlError("bad_argument", str(error)) from error
        except QueueFullError as error:
            raise ControlError("failed", str(error)) from error
        except OSError as error:
            raise ControlError("failed", f"{error.filename or ''}: {error.strerror or error}") from error

    def _later(self, work: Callable[[], T], then: Callable[[T], Any], storage: JobStorage) -> None:
        """Run `work` in the background, and answer the present request with `then` of its result."""
        request = self.worker.request_id

        def done(result: Callable[[], T]) -> None:
            self.worker.request_id = request
            try:
                with self._refusals():
                    found = result()
                    if self.storage is not storage:
                        raise StoreError("the queue was reopened meanwhile; try again")
                    answer = then(found)
            except ControlError as error:
                self.worker.refuse(request, error)
            else:
                if answer is not None:
                    self.worker.reply(request, to_builtins(answer))

        self.background.begin(work, done)

    def _arm(self, name: str | None, *, needed: bool) -> str | None:
        """Return the arm of a request; the only one if there is one."""
        names = [arm.name for arm in self.config.arm]
        if name is None:
            if len(names) == 1:
                return names[0]
            if needed:
                raise OperationError(f"arm: which? There are {', '.join(names)}")
        elif name not in names:
            raise OperationError(f"arm: there is no {name!r:.80}; there are {', '.join(names)}")
        return name

    # ------------------------------------------------------------ jobs

    def _submit(self, args: _Submit, storage: JobStorage) -> replies.Submitted | None:
        kind = find_kind(args.kind)
        arm = self._arm(args.arm, needed=kind.needs_arm)
        parameters = dict(args.parameters)
        for name in _ROBOTS:
            if name in kind.parameters.model_fields:
                parameters[name] = self._robot(parameters.get(name), name, arm, storage.references.path_policy)
        if kind.uses_active and arm is not None:
            parameters["robot"] = self._own_robot(parameters["robot"], arm)
            parameters["springs"] = springs_of(self.config.find(arm))
        checked = kind.read(parameters)
        large = self._large_files(kind, checked, storage.references)
        if not large:
            return self._resolve(args, checked, {}, storage)

        def read() -> dict[str, dict[str, str]]:
            kept = kind.models if kind.uses_active else ()
            return {
                name: _keep_model(path, name, storage) if name in kept else file_input(path, name)
                for name, path in large.items()
            }

        self._later(read, lambda files: self._resolve(args, checked, files, storage), storage)
        return None

    def _large_files(self, kind: Kind[Any], checked: Parameters, references: References) -> dict[str, Path]:
        named = [(name, RECORDING_WORDS) for name in kind.recordings] + [(name, MODEL_WORDS) for name in kind.models]
        found = {}
        for name, words in named:
            text = getattr(checked, name)
            path = None if text is None else references.file_of(text, name, words)
            if path is not None and is_large(path):
                found[name] = path
        return found

    def _resolve(
        self, args: _Submit, checked: Parameters, files: Mapping[str, dict[str, str]], storage: JobStorage
    ) -> replies.Submitted | None:
        """Queue a job whose parameters have been checked, and whose `files` have been read already."""
        kind = find_kind(args.kind)
        arm = self._arm(args.arm, needed=kind.needs_arm)
        resolved = Resolved(dict(files), list(args.after))
        for name in kind.recordings:
            text = getattr(checked, name)
            if text is not None and name not in files:
                storage.references.recording(text, name, arm, resolved)
        for name in kind.models:
            text = getattr(checked, name)
            if text is not None and name not in files:
                storage.references.model(text, name, arm, resolved)
        if kind.uses_active:  # models to be judged are kept now: their files may change meanwhile
            self._keep_models(kind.models, resolved, storage)
        jobs = self.config.jobs
        parts = list(kind.fan_out.split(checked)) if kind.fan_out is not None and kind.divided(checked) else []
        submission = Submission(
            kind.name, checked.model_dump(mode="json"), arm, resolved.inputs, args.priority,
            time.time_ns() + round(args.due_s * 1e9) if args.due_s else 0, tuple(dict.fromkeys(resolved.after)), parts,
            limits=Limits(args.time_s or jobs.time_s, args.memory_mb or jobs.memory_mb),
        )  # fmt: skip
        if not resolved.live:
            return self._queued(submission, storage)
        if len(resolved.live) > 1:
            raise OperationError(f"{', '.join(resolved.live)}: only one of them can be live")
        self._after_window(submission, resolved, storage)
        return None

    def _keep_models(self, names: tuple[str, ...], resolved: Resolved, storage: JobStorage) -> None:
        """Make artifacts of models that are named as files."""
        for name in names:
            given = resolved.inputs.get(name)
            if given is not None and "path" in given and "name" not in given:
                resolved.inputs[name] = _keep_model(Path(given["path"]), name, storage)

    def _robot(self, given: Any, name: str, arm: str | None, path_policy: PathPolicy) -> Any:
        """Return a robot's whole description, so that the job depends neither on its file nor on this machine."""
        if given is None:
            return robot_text(self.config.find(arm), self.config) if name == "robot" and arm is not None else None
        if not isinstance(given, str) or given.lstrip().startswith("{"):
            return given  # checked with the other parameters
        from service.operations.inputs import open_robot

        path_policy.check_robot(given, name)
        try:
            return json.dumps(open_robot(given).source)
        except ValueError as error:
            raise OperationError(f"{name}: {error}") from error

    def _own_robot(self, given: Any, arm: str) -> Any:
        """Return the arm's own robot; `OperationError` if another was given, whose model would not fit the arm."""
        if not isinstance(given, str):
            return given  # checked with the other parameters
        from service.operations.inputs import open_robot

        own = robot_text(self.config.find(arm), self.config)
        robot, arms_robot = open_robot(given), open_robot(own)
        if robot.sha256 != arms_robot.sha256:
            raise OperationError(
                f"robot: is {robot.model.name} ({robot.sha256[:12]}), arm {arm} is {arms_robot.model.name} "
                f"({arms_robot.sha256[:12]}), and only models of the arm's own robot can be active: leave robot out"
            )
        return own

    def _queued(self, submission: Submission, storage: JobStorage) -> replies.Submitted:
        (job,) = storage.queue.submit(submission)
        self._wake()
        return replies.Submitted(job.id, job.kind, job.parts)

    def _after_window(self, submission: Submission, resolved: Resolved, storage: JobStorage) -> None:
        """Queue the job when its frames have been saved, and answer then."""
        request = self.worker.request_id
        ((name, seconds),) = resolved.live.items()

        def then(given: dict[str, str] | None, error: ControlError | None) -> None:
            if given is None or error is not None:
                self.worker.refuse(request, error or ControlError("failed", "no frames"))
                return
            inputs = {**submission.inputs, name: given}
            try:
                self.worker.reply(request, to_builtins(self._queued(replace(submission, inputs=inputs), storage)))
            except StoreError as problem:
                self.worker.refuse(request, ControlError("unavailable", str(problem)))
            except (JobStateError, QueueFullError, ValueError, OSError) as problem:
                self.worker.refuse(request, ControlError("failed", str(problem)))

        self.auto_identification.save_window(str(submission.arm), seconds, storage, then)

    def _reidentify(self, args: _Reidentify, storage: JobStorage) -> None:
        request = self.worker.request_id
        arm = str(self._arm(args.arm, needed=True))

        def then(ids: list[int] | None, error: ControlError | None) -> None:
            if ids is None or error is not None:
                self.worker.refuse(request, error or ControlError("failed", "no jobs"))
            else:
                self._wake()
                self.worker.reply(request, {"ids": ids})

        self.auto_identification.reidentify(arm, "request", args.promote, storage, then)

    def _wake(self) -> None:
        if self.executor is not None:
            self.executor.wake()

    @property
    def _trouble(self) -> str:
        if self.config.jobs.workers == 0:
            return "jobs.workers is 0: none are run"
        return "" if self.executor is None else self.executor.waiting_reason

    def _recent(self, args: _Recent, storage: JobStorage) -> dict[str, Any]:
        jobs = storage.queue.recent(args.states, args.arm, args.kind, args.limit)
        rows = [summary(job, storage.queue, self.executor, self._trouble) for job in jobs]
        return {"jobs": rows, "trouble": self._trouble}

    def _job(self, args: _One, storage: JobStorage) -> replies.JobDetail:
        return details(storage.queue.job(args.id), storage, self.executor, self._trouble)

    def _cancel(self, args: _One, storage: JobStorage) -> replies.JobSummary:
        job = storage.queue.cancel(args.id)
        if self.executor is not None:
            self.executor.cancel(job.id)
        return summary(job, storage.queue, self.executor, self._trouble)

    def _retry(self, args: _One, storage: JobStorage) -> replies.JobSummary:
        job = storage.queue.retry(args.id)
        self._wake()
        return summary(job, storage.queue, self.executor, self._trouble)

    def _events(self, args: _History, storage: JobStorage) -> dict[str, Any]:
        events = storage.queue.events(args.arm, args.job, args.limit, args.after)
        form = replies.EventEntry
        return {"events": [form(e.id, iso(e.t_ns), e.t_ns, e.kind, e.text, e.arm, e.job, e.data) for e in events]}

    # ------------------------------------------------------------ models

    def _models(self, args: _OfArm, storage: JobStorage) -> dict[str, Any]:
        arm = None if args.arm is None else self._arm(args.arm, needed=True)
        names = [a.name for a in self.config.arm] if arm is None else [arm]
        return {"arms": {name: self._models_of(name, storage) for name in names}}

    def _models_of(self, arm: str, storage: JobStorage) -> replies.ArmModels:
        history = storage.queue.history.promotions(arm)
        models = [_model(model, storage) for model in storage.queue.history.models(arm)]
        form = replies.PromotionEntry
        entries = [form(iso(e.t_ns), e.action, e.model, e.previous, e.job, e.reason, e.data) for e in history]
        return replies.ArmModels(history[-1].model if history else None, models, entries)

    def _description(self, args: _OfArm, storage: JobStorage) -> dict[str, Any]:  # noqa: ARG002
        arm = str(self._arm(args.arm, needed=True))
        return {"arm": arm, "robot": robot_text(self.config.find(arm), self.config)}

    def _rollback(self, args: _Rollback, storage: JobStorage) -> replies.Rollback:
        arm = str(self._arm(args.arm, needed=True))
        entry = storage.queue.history.roll_back(arm, args.reason)
        self.auto_identification.promoted(arm)
        return replies.Rollback(arm, entry.model, entry.previous)

    def _backup(self, args: _Backup, storage: JobStorage) -> None:
        target = storage.references.path_policy.check(Path(args.directory), "directory")
        if self.backing_up:
            raise ControlError("failed", "a backup is under way")
        states = {arm.name: self.config.state_dir / arm.name / STATE_FILE for arm in self.config.arm}

        def work() -> dict[str, int | str]:
            try:
                return back_up(storage, target, states, self.background.stopping)
            except OSError as error:
                raise OperationError(f"directory: {error.filename or target}: {error.strerror}") from error
            finally:
                self.backing_up = False

        self.backing_up = True
        try:
            self._later(work, lambda copied: copied, storage)
        except ControlError:
            self.backing_up = False
            raise


def _keep_model(path: Path, name: str, storage: JobStorage) -> dict[str, str]:
    """Make an artifact of a model's file."""
    return storage.references.artifact(storage.artifacts.put(path), name)


def _model(m: Model, storage: JobStorage) -> replies.ModelEntry:
    error = m.relative_error if m.relative_error is not None and math.isfinite(m.relative_error) else None
    path = str(storage.artifacts.place(m.id))
    return replies.ModelEntry(m.id, iso(m.created_ns), m.method, m.verdict, error, m.origin, m.job, path)

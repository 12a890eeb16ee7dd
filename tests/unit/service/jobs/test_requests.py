"""What the jobs process answers, without the process."""

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from service.config.load import Config
from service.jobs._auto_identification import AutoIdentification
from service.jobs._background import SOON_BYTES
from service.jobs._job_storage import JobStorage
from service.jobs._requests import Requests
from service.jobs.queue.artifacts import sha256_of
from service.protocol.control import ControlError, Request, decode_request, encode_request
from service.protocol.messages import MAX_REPLY, WireError, unpack_map
from service.worker.worker import Worker
from tests.lab.jobs.jobs_process import configuration
from tests.lab.odd_values import REQUESTS, changed


class Desk:
    """The real requests, of a queue with nobody who runs its jobs; answers arrive where the supervisor reads them."""

    def __init__(self, config: Config, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
        self.config = config
        self.worker = Worker("jobs", None, folder)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.supervisor = self._context.socket(zmq.ROUTER)
        self.supervisor.bind(self.worker.runtime.supervisor)
        self.auto_identification = AutoIdentification(self.worker, config)
        self.requests = Requests(self.worker, config, self.auto_identification)
        self.background = self.requests.background
        self.storage = self.requests.storage = JobStorage.open(config.state_dir / "jobs")

    def ask(self, verb: str, **args: Any) -> dict[str, Any] | None:
        """Make a request; None if it is answered later."""
        self.worker.request_id += 1
        answer = self.requests.handlers[verb](args)
        return None if answer is None else dict(answer)

    def reply(self) -> dict[str, Any]:
        """Take what was answered later."""
        assert self.supervisor.poll(10_000)
        return unpack_map(self.supervisor.recv_multipart()[1], MAX_REPLY, text=MAX_REPLY)

    def close(self) -> None:
        self.background.close()
        self.worker.close()
        self._context.destroy(linger=0)
        self.storage.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(configuration(tmp_path / "state"), tmp_path / "r")
    yield one
    one.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A model and a recording, which nobody reads before the job runs."""
    for name in ("model", "recording"):
        (tmp_path / name).write_bytes(name.encode())
    return {name: str(tmp_path / name) for name in ("model", "recording")}


@pytest.mark.parametrize("robot", ["ur10", '{"format": 1}', "nobody"])
def test_only_a_model_of_the_arms_own_robot_can_become_active(desk: Desk, files: dict[str, str], robot: str) -> None:
    with pytest.raises(ControlError, match="robot") as refused:
        desk.ask("submit", kind="promote", parameters={**files, "robot": robot})
    assert refused.value.type == "bad_argument"
    assert desk.storage.queue.counts() == {}


def test_the_arms_own_robot_may_be_named(desk: Desk, files: dict[str, str]) -> None:
    for more in ({}, {"robot": "space6"}, {"robot": None}):
        desk.ask("submit", kind="promote", parameters=files | more)
    (robot,) = {str(job.parameters["robot"]) for job in desk.storage.queue.recent()}
    assert desk.ask("submit", kind="promote", parameters=files | {"robot": robot}) is not None
    other = desk.ask("submit", kind="identify", parameters={"recording": files["recording"], "robot": "ur10"})
    assert other is not None  # a fit of another robot concerns nobody's active model


def large(path: Path) -> Path:
    """A file with a hole: large, and on no disk."""
    with path.open("wb") as stream:
        stream.truncate(10 * SOON_BYTES)
    return path


def later(desk: Desk) -> dict[str, Any]:
    """Let the loop go round until something is answered."""
    while not desk.supervisor.poll(10):
        desk.background.step()
    return desk.reply()


def test_a_large_file_is_read_beside_the_requests(desk: Desk, tmp_path: Path) -> None:
    recording, model = large(tmp_path / "long.mcap"), large(tmp_path / "large.yaml")
    parameters = {"recording": str(recording), "model": str(model)}
    assert desk.ask("submit", kind="promote", parameters=parameters) is None
    assert desk.ask("jobs") == {"jobs": [], "trouble": ""}  # others are answered meanwhile
    assert later(desk)["result"]["id"] == 1
    inputs = desk.storage.queue.job(1).inputs
    assert inputs["recording"] == {"path": str(recording), "sha256": sha256_of(recording)}
    assert inputs["model"]["path"] == str(desk.storage.artifacts.path(sha256_of(model)))
    assert desk.ask("submit", kind="identify", parameters={"recording": str(recording)}) is None
    recording.unlink()
    answer = later(desk)
    assert "result" in answer or "no such file" in answer["error"]["message"]


def test_a_large_file_that_is_refused(desk: Desk, tmp_path: Path) -> None:
    recording = large(tmp_path / "long.mcap")
    parameters = {"recording": str(recording), "model": "job:7"}
    assert desk.ask("submit", kind="validate", parameters=parameters) is None
    error = later(desk)["error"]
    assert (error["type"], "no job 7" in error["message"]) == ("bad_argument", True)
    assert desk.ask("submit", kind="identify", parameters={"recording": str(recording)}) is None
    desk.requests.storage = None  # the queue was found to be damaged
    assert later(desk)["error"]["type"] == "unavailable"


def test_a_backup_goes_on_beside_the_requests(desk: Desk, tmp_path: Path) -> None:
    """Copying stands still at an estimator's state that is a pipe, until somebody writes to it."""
    state = desk.config.state_dir / "arm" / "estimator.state"
    state.parent.mkdir()
    os.mkfifo(state)
    assert desk.ask("backup", directory=str(tmp_path / "copy")) is None
    with pytest.raises(ControlError, match="a backup is under way"):
        desk.ask("backup", directory=str(tmp_path / "other"))
    assert desk.ask("submit", kind="compare") is not None
    assert not desk.supervisor.poll(100)
    with state.open("wb") as stream:
        stream.write(b"estimate")
    assert later(desk)["result"]["files"] == 2
    assert (tmp_path / "copy" / "estimators" / "arm" / "estimator.state").read_bytes() == b"estimate"
    assert desk.ask("backup", directory="/proc/nowhere") is None
    error = later(desk)["error"]
    assert (error["type"], "directory" in error["message"]) == ("bad_argument", True)


def test_any_values_are_taken_or_refused(desk: Desk, files: dict[str, str]) -> None:
    rng = random.Random(1)
    compared = {"methods": ["ols"], "seeds": 2, "first_seed": 1, "seconds": 2.0, "noise": [0.1] * 6, "outliers": 0.1}
    designed = {"harmonics": 5, "period_s": 10.0, "rate_hz": 100.0, "seed": 1, "acceleration": [1.0] * 6, "starts": 2}
    fitted = {"recording": files["recording"], "cutoff_hz": 9.0, "min_velocity": [0.1] * 6, "multi_start": 2}
    limits = {"after": [1], "priority": 0, "due_s": 1.0, "time_s": 9.0, "memory_mb": 500.0}
    kinds = {"compare": compared, "excite": designed, "identify": fitted, "validate": files | {"span": "0:0.5"}}
    requests = [("submit", {"kind": kind, "parameters": kinds[kind], **limits}) for kind in kinds] * 4
    requests += [("events", {"job": 1, "limit": 9, "after": 0}), ("jobs", {"states": ["queued"], "limit": 9})]
    requests += [(verb, {"id": 1}) for verb in ("job", "cancel", "retry")] + [("rollback", {"reason": "x"})]
    assert desk.ask("submit", kind="compare") is not None
    for _ in range(REQUESTS):
        verb, args = rng.choice(requests)
        with contextlib.suppress(WireError):
            args = decode_request(encode_request(Request(1, verb, changed(rng, args)))).args
            with contextlib.suppress(ControlError):
                desk.ask(verb, **args)
    assert desk.storage.queue.counts()["queued"] > 1

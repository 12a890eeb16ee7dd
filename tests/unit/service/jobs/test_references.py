"""What texts name as recordings, models and paths: what is found, what is refused, and never a key."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.config.daemon import JobsConfig
from service.config.load import parse_config
from service.jobs._backup import back_up
from service.jobs._job_storage import JobStorage
from service.jobs._path_policy import PathPolicy
from service.jobs.budget import recordings_of, to_delete
from service.jobs.queue.queue import Submission
from service.jobs.queue.retention import needed_files
from service.jobs.queue.state import Job
from service.jobs.queue.store import Model, Promotion, StoreError
from service.jobs.references import Resolved, file_input
from service.operations.errors import OperationError
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair

GOOD = {"verdict": "ok", "summary": "fine"}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[JobStorage]:
    opened = JobStorage.open(tmp_path / "state" / "jobs")
    yield opened
    opened.close()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "rec.mcap"
    path.write_bytes(b"frames")
    return path


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def run(storage: JobStorage, makes: bytes | None = None, arm: str | None = None, **inputs: dict[str, str]) -> Job:
    """A job that has succeeded, and a model that it made."""
    (job,) = storage.queue.submit(Submission("test", {}, arm, inputs))
    held = storage.queue.claim("me", 60.0)
    results, model, promotion = {}, None, None
    if makes is not None:
        path = storage.directory / "made"
        path.write_bytes(makes)
        results = {"model.yaml": {"sha256": storage.artifacts.put(path), "bytes": len(makes)}}
        if arm is not None:
            model = Model(sha(makes), arm, 1, job.id)
            promotion = Promotion(1, arm, sha(makes), storage.queue.history.active(arm), "promoted", job.id)
    return storage.queue.finish(
        held.id, held.token, GOOD | {"results": results}, model=model, promotion=promotion
    )  # fmt: skip


def recording_of(storage: JobStorage, text: str, arm: str | None = None) -> Resolved:
    into = Resolved()
    storage.references.recording(text, "recording", arm, into)
    return into


def model_of(storage: JobStorage, text: str, arm: str | None = None) -> Resolved:
    into = Resolved()
    storage.references.model(text, "model", arm, into)
    return into


def test_files_are_named_with_their_hash(storage: JobStorage, recording: Path) -> None:
    want = {"path": str(recording), "sha256": sha(b"frames")}
    assert recording_of(storage, str(recording)) == Resolved({"recording": want})
    assert model_of(storage, str(recording)) == Resolved({"model": want})


@pytest.mark.parametrize(
    ("text", "why"),
    [("rec.mcap", "rec.mcap: give the whole path"), ("/nowhere/rec.mcap", "no such file"),
     ("/dev/zero", "is not a file"), ("/" + "x" * 5000, "File name too long"), ("/a\0b", "embedded null byte")],
)  # fmt: skip
def test_files_that_are_none(storage: JobStorage, text: str, why: str) -> None:
    for resolve, name in ((recording_of, "recording"), (model_of, "model")):
        with pytest.raises(OperationError) as error:
            resolve(storage, text)
        assert str(error.value).startswith(f"{name}: ")
        assert why in str(error.value)


@pytest.mark.parametrize(("text", "seconds"), [("live:60", 60.0), ("live:1.5s", 1.5)])
def test_live_frames(storage: JobStorage, text: str, seconds: float) -> None:
    assert recording_of(storage, text, "arm").live == {"recording": seconds}
    with pytest.raises(OperationError, match="whose frames"):
        recording_of(storage, text)


@pytest.mark.parametrize("text", ["live:", "live:0.5", "live:nan", "live:1e9", "live:ss"])
def test_live_frames_that_are_none(storage: JobStorage, text: str) -> None:
    with pytest.raises(OperationError, match=f"recording: {text}: write live:SECONDS, at least 1"):
        recording_of(storage, text, "arm")


def test_the_recording_of_a_job(storage: JobStorage, recording: Path) -> None:
    given = file_input(recording, "recording")
    run(storage, recording=given)
    run(storage)
    recording.unlink()
    assert recording_of(storage, "job:1") == Resolved({"recording": given})  # as it was then
    with pytest.raises(OperationError, match="recording: job:2: that job has no recording"):
        recording_of(storage, "job:2")


@pytest.mark.parametrize(
    ("text", "why"),
    [("job:", "write job:NUMBER"), ("job:1.5", "write job:NUMBER"), ("job:" + "9" * 5000, "write job:NUMBER"),
     ("job:-1", "there is no job -1")],
)  # fmt: skip
def test_jobs_that_are_none(storage: JobStorage, text: str, why: str) -> None:
    for resolve in (recording_of, model_of):
        with pytest.raises(OperationError, match=why):
            resolve(storage, text)


def test_the_model_that_a_job_makes(storage: JobStorage) -> None:
    (maker,) = storage.queue.submit(Submission("test", {}))
    resolved = model_of(storage, "job:1")
    assert resolved == Resolved({"model": {"job": 1}}, after=[1])
    (user,) = storage.queue.submit(Submission("test", {}, inputs=resolved.inputs, after=tuple(resolved.after)))
    with pytest.raises(OperationError, match="model: job 1 made no model"):
        storage.references.at_start(user)
    storage.queue.cancel(maker.id)
    with pytest.raises(OperationError, match="model: job:1: that job was cancelled: cancelled before it ran"):
        model_of(storage, "job:1")


def test_the_model_that_a_job_has_made(storage: JobStorage, recording: Path) -> None:
    run(storage, b"a model")
    run(storage)
    given = file_input(recording, "recording")
    (user,) = storage.queue.submit(Submission("test", {}, inputs={"model": {"job": 1}, "recording": given}))
    path = storage.artifacts.path(sha(b"a model"))
    model = {"path": str(path), "sha256": sha(b"a model"), "name": f"model {sha(b'a model')[:12]}"}
    assert storage.references.at_start(user) == {"model": model, "recording": given}
    with pytest.raises(OperationError, match="model: job 2 made no model"):
        model_of(storage, "job:2")  # said at once


def test_active_and_kept_models(storage: JobStorage) -> None:
    with pytest.raises(OperationError, match="active model of which arm"):
        model_of(storage, "active")
    with pytest.raises(OperationError, match="arm left has no active model; promote one, or name a file"):
        model_of(storage, "active", "left")
    for content in (b"one", b"two"):
        run(storage, content, "left")
    path, name = str(storage.artifacts.path(sha(b"two"))), f"model {sha(b'two')[:12]}"
    given = {"path": path, "sha256": sha(b"two"), "name": name}
    assert model_of(storage, "active", "left") == Resolved({"model": given})
    assert model_of(storage, f"model:{sha(b'two')[:4]}") == Resolved({"model": given})
    storage.queue.history.roll_back("left", "")
    assert model_of(storage, "active", "left").inputs["model"]["sha256"] == sha(b"one")
    for text in ("model:", f"model:{sha(b'two')[:3]}", "model:ffff"):
        with pytest.raises(OperationError, match="no such model is kept; `thetad models list` names them"):
            model_of(storage, text)
    with storage.queue.store.write() as tx:
        tx.put(Model(sha(b"two")[:6] + "0" * 58, "right", 1))
    with pytest.raises(OperationError, match="several models begin so"):
        model_of(storage, f"model:{sha(b'two')[:5]}")


# ---------------------------------------------------------------- what is kept beside the queue


def test_backup_has_all_that_the_queue_names(storage: JobStorage, tmp_path: Path) -> None:
    window = storage.windows / "left.window"
    window.write_bytes(b"frames")
    run(storage, b"a model", "left", recording=file_input(window, "recording"))
    target = tmp_path / "backup"
    back_up(storage, target, {"left": tmp_path / "left" / "estimator.state"})  # which there is none of yet
    assert back_up(storage, target, {})["files"] == 1  # all but the queue is there already
    (target / "windows" / "left.window").unlink()
    (target / "objects" / sha(b"a model")[:2] / sha(b"a model")[2:]).unlink()
    said = back_up(storage, target, {})
    assert said == {"path": str(target), "files": 3, "bytes": len(b"a model") + len(b"frames")}
    assert (target / "windows" / "left.window").read_bytes() == b"frames"
    copy = JobStorage.open(target)
    assert copy.queue.job(1) == storage.queue.job(1)
    assert copy.artifacts.verify(sha(b"a model")).read_bytes() == b"a model"
    copy.close()
    with pytest.raises(StoreError, match="is a queue in use"):
        back_up(storage, storage.directory, {})


def make_old(path: Path) -> Path:
    path.write_bytes(b"frames")
    os.utime(path, (0, 0))
    return path


def test_purging_deletes_unneeded_windows(storage: JobStorage) -> None:
    (storage.windows / "young").write_bytes(b"frames")
    for name in ("needed", "old"):
        make_old(storage.windows / name)
    run(storage, recording=file_input(storage.windows / "needed", "recording"))
    storage.purge(JobsConfig())
    assert {path.name for path in storage.windows.iterdir()} == {"needed", "young"}


def test_what_jobs_need_stays_where_the_state_directory_lies_behind_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to all of it, as of a home on another disk, and one to a folder of it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "windows").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    table = {"arm": [{"name": "left", "robot": "emps", "driver": {"kind": "sim"}, "recorder": {"max_gb": 1e-9}}]}
    config = parse_config(table, "test", tmp_path)
    jobs = config.state_dir / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "windows").symlink_to(tmp_path / "windows")
    folder = config.recording_dir(config.arm[0])
    folder.mkdir(parents=True)
    for name in ("left-20260101T000000.mcap", "left-20260102T000000.mcap"):
        make_old(folder / name)
    storage = JobStorage.open(tmp_path / "home" / "thetad" / config.daemon.name / "jobs")
    try:
        window = make_old(storage.windows / "left.window")
        run(storage, recording=file_input(window, "recording"))
        needed = file_input(folder / "left-20260101T000000.mcap", "recording")
        storage.queue.submit(Submission("test", {}, inputs={"recording": needed}))
        storage.purge(JobsConfig())
        assert window.exists()
        assert back_up(storage, tmp_path / "copy", {})["files"] == 2
        paths = needed_files(storage.queue.store, unfinished=True).paths
        behind = tmp_path / "home" / "thetad" / config.daemon.name / "left" / "recordings"
        for found in (recordings_of("left", folder), recordings_of("left", behind)):
            assert [one.path.name for one in to_delete(found, 1e9, None, 1e-9, paths)] == ["left-20260102T000000.mcap"]
    finally:
        storage.close()


def test_a_storage_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"file.*Not a directory"):
        JobStorage.open(tmp_path / "file" / "jobs")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("data/sub", "data2", "other", "keys"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.mcap").write_text(name)
    (tmp_path / "data" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data" / "loop")
    (tmp_path / "other" / "in.mcap").symlink_to(tmp_path / "data" / "x.mcap")
    return tmp_path


@pytest.mark.parametrize("path", ["data/sub/x.mcap", "data/sub/../x.mcap", "other/in.mcap", "data/new"])
def test_what_lies_in_a_folder_may_be_named(root: Path, path: str) -> None:
    path_policy = PathPolicy((root / "data",), root / "keys")
    assert path_policy.check(root / path, "recording").is_relative_to(root / "data")


@pytest.mark.parametrize(
    "path", ["other/x.mcap", "data2/x.mcap", "data/../other/x.mcap", "data/out/x.mcap", "data/../../etc/passwd", "."]
)
def test_what_lies_elsewhere_may_not(root: Path, path: str) -> None:
    path_policy = PathPolicy((root / "data",), root / "keys")
    with pytest.raises(OperationError, match=r"recording: .* is in none of the folders"):
        path_policy.check(root / path, "recording")


@pytest.mark.parametrize("folders", [True, False])
@pytest.mark.parametrize("path", ["keys", "data/../keys/x.mcap"])
def test_keys_are_never_accessible(root: Path, path: str, folders: bool) -> None:
    path_policy = PathPolicy((root,) if folders else None, root / "keys")
    with pytest.raises(OperationError, match="keys are there"):
        path_policy.check(root / path, "recording")


@pytest.mark.parametrize(
    ("path", "words"),
    [("x.mcap", "whole path"), ("/data\0/x", "null"), ("/" + "x" * 5000, "none of the folders"),
     ("{root}/data/loop", "none|loop")],
)  # fmt: skip
def test_what_is_no_path_is_refused(root: Path, path: str, words: str) -> None:
    path_policy = PathPolicy((root / "other",), root / "keys")
    with pytest.raises(OperationError, match=words):
        path_policy.check(Path(path.replace("{root}", str(root))), "recording")


def test_without_folders_files_are_as_before(root: Path) -> None:
    path = PathPolicy().check(root / "other" / "x.mcap", "recording")
    assert file_input(path, "recording") == file_input(root / "other" / "x.mcap", "recording")


@pytest.mark.parametrize("text", ["robot.toml", "../emps", "x\0"])
def test_a_robot_is_no_path_where_folders_are_given(text: str) -> None:
    with pytest.raises(OperationError, match="name of a robot"):
        PathPolicy(()).check_robot(text, "robot")
    PathPolicy().check_robot(text, "robot")
    PathPolicy(()).check_robot("space6", "robot")


def test_a_daemon_with_keys_limits_clients_to_its_recordings(tmp_path: Path) -> None:
    make_directory(tmp_path / "keys")
    write_pair(tmp_path / "keys" / SERVER_KEY, new_pair(), "test")
    arm = {"name": "a", "robot": "emps", "driver": {"kind": "sim"}, "recorder": {"directory": "rec"}}
    daemon = {"state_dir": "state", "keys_dir": "keys"}
    plain = parse_config({"daemon": daemon, "arm": [arm]}, "test", tmp_path)
    assert PathPolicy.of(plain) == PathPolicy(None, tmp_path / "keys")
    keyed = parse_config({"daemon": daemon | {"require_keys": True}, "arm": [arm]}, "test", tmp_path)
    assert PathPolicy.of(keyed) == PathPolicy((tmp_path / "rec",), tmp_path / "keys")
    more = parse_config({"daemon": daemon, "jobs": {"folders": ["x", "/y"]}, "arm": [arm]}, "test", tmp_path)
    assert PathPolicy.of(more).folders == (tmp_path / "x", Path("/y"))

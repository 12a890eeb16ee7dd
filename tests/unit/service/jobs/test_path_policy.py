"""Paths that clients name: inside the folders that they may, wherever links and dots lead, and never to the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config.load import parse_config
from service.jobs._path_policy import PathPolicy
from service.jobs.references import file_input
from service.operations.errors import OperationError
from service.security.files import make_directory
from service.security.keys import SERVER_KEY, new_pair, write_pair


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
    [
        ("x.mcap", "whole path"),
        ("/data\0/x", "null"),
        ("/" + "x" * 5000, "none of the folders"),
        ("{root}/data/loop", "none|loop"),
    ],
)
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

"""`thetad import` and `thetad recordings`, as their arguments and outputs go."""

import json
from pathlib import Path

import pytest

from drivers.files.recordings.recording import RecordingExistsError, read_recording
from service.cli._common import CliError
from service.cli.main import build_parser
from tests.lab.recordings.frames import write
from tests.lab.recordings.logs import NPZ, npz


def run(*arguments: object) -> int:
    parsed = build_parser(str(arguments[0])).parse_args([str(argument) for argument in arguments])
    return int(parsed.run(parsed))


def test_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out, mapping = npz(tmp_path), tmp_path / "r.mcap", tmp_path / "lab.toml"
    mapping.write_text(NPZ)
    assert run("import", data, "--mapping", mapping, "-o", out, "--json") == 0
    result, recording = json.loads(capsys.readouterr().out), read_recording(out)
    assert (result["frames"], result["sha256"], result["path"]) == (recording.samples, recording.sha256, str(out))
    assert run("import", data, "--mapping", mapping, "-o", out, "--force") == 0
    assert "400 frames of lab" in capsys.readouterr().out
    with pytest.raises(RecordingExistsError, match="--force"):
        run("import", data, "--mapping", mapping, "-o", out)


def test_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "r.mcap", 100, chunk_s=0.02)
    assert run("recordings", "info", path, "--json") == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["frames"], info["lost"], info["complete"]) == (100, 0, True)
    assert run("recordings", "info", path) == 0
    assert "shoulder [rad], slide [m]" in capsys.readouterr().out
    path.write_bytes(path.read_bytes()[:-300])
    assert run("recordings", "info", path) == 1
    captured = capsys.readouterr()
    assert "NOT COMPLETE" in captured.out
    assert "thetad recordings recover" in captured.err


def test_recover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = write(tmp_path / "r.mcap", 100, chunk_s=0.02), tmp_path / "r.recovered.mcap"
    path.write_bytes(path.read_bytes()[:-1])
    assert run("recordings", "recover", path, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["path"], result["frames"], result["was_complete"]) == (str(target), 100, False)
    assert read_recording(target).samples == 100
    with pytest.raises(CliError, match="already there"):
        run("recordings", "recover", path)
    assert run("recordings", "recover", path, "--force") == 0
    with pytest.raises(CliError, match="the recording itself"):
        run("recordings", "recover", path, "-o", path, "--force")

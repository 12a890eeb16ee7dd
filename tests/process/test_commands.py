"""The commands that run a daemon or talk to one."""

import errno
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from service.cli import _common as common
from service.cli import main
from service.cli.daemon import serve
from service.config.load import ConfigError
from service.demo.demo import coverage
from service.protocol.messages import WireError
from service.supervisor._worker_pool import WorkerPool
from service.supervisor.launch import DaemonProcess
from service.supervisor.supervisor import StartError
from tests.lab.bridge.bench import Bridge
from tests.lab.bridge.viewer import Viewer
from tests.lab.command_line import ROOT, Outcome
from tests.lab.daemon.daemons import config, make_recording, replayed, start

NOBODY = "tcp://127.0.0.1:1"
PORTS = "frames_port = 0\nestimates_port = 0\ncontrol_port = 0\nhttp = false\n"


@pytest.fixture
def thetad(capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process; what processes that it starts print counts, too."""

    def run(*arguments: object) -> Outcome:
        try:
            code = main.main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        return Outcome(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[DaemonProcess]:
    arm = replayed(make_recording(folder / "rec.mcap", seconds=10.0), loop=True, recorder={"enabled": False})
    with start(config(folder, arm), folder) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("made", "heavy"),
    [("service.cli.main as m; m.build_parser('').format_help()", "numba scipy numpy zmq pydantic rich"),
     ("service.client", "numba scipy pydantic")],
)  # fmt: skip
def test_help_and_client_are_light(made: str, heavy: str) -> None:
    code = f"import sys, {made}; sys.exit(any(name in sys.modules for name in {heavy.split()}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("command", ["status", "record start", "record to x.mcap --arm a", "watch --json"])
def test_a_daemon_that_is_not_there_is_exit_code_3(
    thetad: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    where = "--endpoint" if command.startswith(("record to", "watch")) else "--control"
    result = thetad(*command.split(), where, NOBODY, "--timeout", "0.2")
    assert (result.code, result.out) == (3, "")
    assert "is the daemon running" in result.err
    assert "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_what_may_pass_by_itself_is_exit_code_3(thetad: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systemd tries again then, as it does not after exit code 2."""

    def refuse(*_args: object, **_more: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    path = write_config(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    result = thetad("serve", "-c", path)
    assert (result.code, "Resource temporarily unavailable" in result.err) == (3, True)


@pytest.mark.parametrize("what", ["configuration", "robot", "key"])
def test_a_file_that_cannot_be_read_at_the_moment_is_exit_code_3(thetad: Any, tmp_path: Path, what: str) -> None:
    """A disk that answers with an error may answer otherwise at the next start; the kernel has a file that does so."""
    path = write_config(tmp_path)
    unreadable = Path("/proc/self/mem")
    text = path.read_text(encoding="utf-8")
    if what == "configuration":
        path.unlink()
        path.symlink_to(unreadable)
    elif what == "robot":
        (tmp_path / "robot.toml").symlink_to(unreadable)
        path.write_text(text.replace('"emps"', f'"{tmp_path}/robot.toml"', 1), encoding="utf-8")
    else:
        (tmp_path / "keys").mkdir(mode=0o700)
        (tmp_path / "keys" / "server.key").symlink_to(unreadable)
        keys = f'keys_dir = "{tmp_path}/keys"\nrequire_keys = true\n'
        path.write_text(text.replace("[daemon]\n", f"[daemon]\n{keys}", 1), encoding="utf-8")
    result = thetad("serve", "-c", path)
    assert (result.code, "Input/output error" in result.err) == (3, True), result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(WireError("no message"), 3, "no message"), (ConfigError("of what the daemon does"), 3, "of what the daemon does"),
     (StartError("the robot is wrong", again=False), 2, "the robot is wrong"),
     (StartError("the bus is off", again=True), 3, "the bus is off")],
)  # fmt: skip
def test_an_error_of_the_running_daemon_is_exit_code_3(
    thetad: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    """The next start may go well, whatever class of this program it is; but what a start says of itself counts."""

    def fail(*_: object) -> None:
        raise error

    path = write_config(tmp_path)
    monkeypatch.setattr(WorkerPool, "keep_running", fail)
    result = thetad("serve", "-c", path)
    assert result.code == code, result.err
    *log, last = result.err.splitlines()
    assert last == f"thetad: {path}: {said}"
    assert any("Traceback" in line for line in log) is not isinstance(error, StartError)  # for who has to mend it


@pytest.mark.parametrize("key", ["state_dir", "runtime_dir"])
def test_a_directory_that_cannot_be_used_is_exit_code_3(thetad: Any, tmp_path: Path, key: str) -> None:
    """Its disk may not be mounted yet."""
    path, place = write_config(tmp_path), tmp_path / "rec.mcap" / "below"
    places = {"state_dir": tmp_path / "state", key: place}
    table = "".join(f'{name} = "{folder}"\n' for name, folder in places.items())
    path.write_text(path.read_text(encoding="utf-8").replace('state_dir = "state"\n', table), encoding="utf-8")
    result = thetad("serve", "-c", path)
    assert result.code == 3
    assert f"thetad: daemon.{key}: {place}: cannot be used: Not a directory" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_a_recording_that_cannot_be_played_is_exit_code_2(thetad: Any, tmp_path: Path, damaged: bool) -> None:
    """It is so at the next start too: systemd need not try again."""
    path = write_config(tmp_path)
    recording = tmp_path / "rec.mcap"
    recording.unlink()
    if damaged:
        recording.write_bytes(b"rubbish")
    result = thetad("serve", "-c", path)
    assert result.code == 2
    assert f"thetad: {path}: replay: {recording}: " in result.err


@pytest.mark.parametrize(
    ("name", "code", "words"), [("\u00e9" * 10, 2, "not a network interface name"), ("gone0", 3, "there is no network")]
)
def test_an_interface_that_there_cannot_be_is_exit_code_2(
    thetad: Any, tmp_path: Path, name: str, code: int, words: str
) -> None:
    """One that is not there is 3, for it may come; no start mends a name that is longer than the kernel's."""
    text = (ROOT / "configs" / "ethercat_arm9.toml").read_text(encoding="utf-8").replace('"thetad0"', f'"{name}"', 1)
    path = tmp_path / "bus.toml"
    path.write_text(text.replace('name = "ethercat"\n', f'state_dir = "state"\n{PORTS}', 1), encoding="utf-8")
    result = thetad("serve", "-c", path)
    assert (result.code, words in result.err) == (code, True)


def write_config(tmp_path: Path, **driver: object) -> Path:
    make_recording(tmp_path / "rec.mcap")
    lines = [f"{key} = {json.dumps(value)}" for key, value in driver.items()]
    path = tmp_path / "daemon.toml"
    arm = '[[arm]]\nname = "axis"\nrobot = "emps"\n[arm.driver]\nkind = "replay"\nrecording = "rec.mcap"\n'
    path.write_text(f'[daemon]\nstate_dir = "state"\n{PORTS}{arm}' + "\n".join(lines) + "\n")
    return path


def test_check_looks_at_robots_sources_and_settings(thetad: Any, tmp_path: Path) -> None:
    path = write_config(tmp_path)
    result = thetad("serve", "-c", path, "--check").json
    assert result["arms"][0] | {"joints": 1, "rate_hz": 1000.0, "channels": ["q", "tau"]} == result["arms"][0]
    good = path.read_text()
    for text, word in (
        (good.replace("emps", "emsp"), 'did you mean "emps"'),
        (good.replace("rec.mcap", "none.mcap"), "none.mcap"),
        (good + "[arm.estimator]\nmemry_s = 1\n", "arm[0].estimator.memry_s"),
        (good.replace("http = false", 'http_token_file = "none.token"'), "daemon.http_token_file"),
        ("[daemon\n", "line 1"),
    ):
        path.write_text(text)
        thetad("serve", "-c", path, "--check").refused(word)
    thetad("serve", "-c", path).refused(f"thetad: {path}: ", "line 1")


def test_serve_says_when_it_is_ready_logs_json_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    path = write_config(tmp_path, loop=True)
    command = [sys.executable, "-m", "service.cli.main", "serve", "-c", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stdout.readline())["event"] == "ready"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    events = [json.loads(line) for line in err.splitlines()]
    assert all({"process", "event", "level", "timestamp"} <= event.keys() for event in events)
    assert any(event.get("arm") == "axis" and event.get("epoch") for event in events)


@pytest.mark.slow
def test_status_and_control(thetad: Any, running: DaemonProcess) -> None:
    control = ("--control", running.endpoints["control"])
    roles = {process["role"] for process in thetad("status", *control, "--json").json["processes"]}
    assert roles == {"gateway", "jobs", "acquisition", "estimator", "recorder"}
    assert "axis/estimator" in thetad("status", *control).out
    assert thetad("control", "snapshot", "arm=axis", *control).json["arm"] == "axis"
    for arguments, word in (
        (("fly",), "verbs: ping"), (("snapshot", "axis"), "NAME=VALUE"), (("snapshot", "arm=other"), "axis"),
        (("activate", "theta=[1]"), "theta"),
    ):  # fmt: skip
        thetad("control", *arguments, *control).refused(word)


@pytest.mark.slow
def test_watch(thetad: Any, running: DaemonProcess, tmp_path: Path) -> None:
    endpoint, page = ("--endpoint", running.endpoints["estimates"]), tmp_path / "trend.html"
    summary = thetad("watch", *endpoint, "--seconds", "1", "--report", page, "--json").json
    assert summary["arm"] == "axis"
    assert {"name", "unit", "value", "std", "status", "excited"} <= summary["parameters"][0].keys()
    assert summary["age_s"] < 60.0
    text = page.read_text(encoding="utf-8")
    assert "axis: estimates over" in text
    assert all(parameter["name"] in text for parameter in summary["parameters"])
    table = thetad("watch", *endpoint, "--arm", "axis", "--once", "--filter", "nothing")
    assert (table.code, "± (95 %)" in table.out, "active model none" in table.out) == (0, True, True)
    assert thetad("watch", *endpoint, "--arm", "nobody", "--once", "--timeout", "0.5").code == 3
    assert thetad("watch", *endpoint, "--seconds", "-1").code == 2


def test_a_viewer_sees_a_daemon_through_a_bridge(running: DaemonProcess) -> None:
    """The names of the daemon's own messages are those that the bridge needs; more of it: tests/process/bridge."""
    endpoints = running.endpoints["frames"], running.endpoints["estimates"]
    with Bridge(endpoints, 50.0).running() as bridge, Viewer(bridge.server.url) as viewer:
        viewer.subscribe("axis/joint_states", "axis/torque", "axis/estimate", "axis/status/estimator")
        (joint,) = viewer.next("axis/joint_states")[1]["joints"]
        assert joint.keys() == {"name", "position", "effort"}
        estimate = viewer.next("axis/estimate")[1]
        assert {"fv1", "fc1", "off1", "m1"} <= {row["name"] for row in estimate["parameters"]}
        assert len(viewer.next("axis/torque")[1]["predicted"]) == 1
        assert viewer.next("axis/status/estimator")[1]["state"] == "running"
    assert bridge.shaper.counts["unusable"] == 0


def test_record(thetad: Any, running: DaemonProcess, tmp_path: Path) -> None:
    control = ("--control", running.endpoints["control"])
    assert thetad("record", "start", *control, "--json").json["recording"] is True
    path, frames = tmp_path / "here.mcap", ("--arm", "axis", "--endpoint", running.endpoints["frames"])
    result = thetad("record", "to", path, "--seconds", "1", *frames, "--json")
    assert read_recording(path).samples == result.json["frames"] > 100
    stopped = thetad("record", "stop", *control)
    assert (stopped.code, "not recording" in stopped.out) == (0, True)
    thetad("record", "to", path, *frames).refused("here.mcap")


def test_replay_ends_with_an_estimate_and_a_model_file(thetad: Any, tmp_path: Path) -> None:
    path, model = make_recording(tmp_path / "rec.mcap", seconds=12.0), tmp_path / "model.yaml"
    done = thetad("replay", path, "--robot", "emps", "--speed", "max", "-o", model, "--set", "memory_s=30", "--json")
    assert done.code == 0
    frames = done.json["frames"]
    assert (frames["sent"], frames["received"], frames["lost"]) == (12_000, 12_000, 0)
    found = {row["name"]: row["value"] for row in done.json["parameters"]}
    assert found == pytest.approx({"fv1": 2.0, "fc1": 1.0, "off1": 0.5, "m1": 3.0}, rel=0.1)
    assert thetad("validate", model, path, "--json").ok().json["relative_error"] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "word"), [("arm7", "7"), ("emps --speed 0", "arm[0].driver.speed"), ("emps --set memry_s=1", "memory_s")]
)
def test_replay_of_what_cannot_be_replayed(thetad: Any, tmp_path: Path, extra: str, word: str) -> None:
    path = make_recording(tmp_path / "rec.mcap", seconds=0.2)
    result = thetad("replay", path, "--log", tmp_path / "log", "--robot", *extra.split())
    assert (result.code, word in result.err, "Traceback" in result.err) == (2, True, False), result


@pytest.mark.parametrize(
    ("error", "code"),
    [(common.CliError("x"), 2), (common.UnavailableError("x"), 3), (FileNotFoundError(2, "No such file", "x"), 2),
     (KeyboardInterrupt(), 130), (ZeroDivisionError("x"), 3), (ValueError("a bug"), 3)],
)  # fmt: skip
def test_errors_become_exit_codes(
    thetad: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setattr(serve, "run", fail)
    result = thetad("serve", "-c", "x.toml")
    assert result.code == code
    assert ("Traceback" in result.err) == isinstance(error, (ZeroDivisionError, ValueError))


def test_coverage_counts_values_within_their_intervals() -> None:
    truth = np.array([1.0, -2.0, 0.0, 5.0])
    std = np.array([0.1, 0.1, 0.1, 0.0])
    off = (0.0, 1.95 * std, -1.97 * std, [0.1, 0.3, 0.1, 1e-9], np.nan)
    assert [coverage(truth, truth + np.array(each), std) for each in off] == [1.0, 1.0, 0.25, 0.5, 0.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--excite", "5"), "--excite: '5' is not a number from 10"),
        (("--validate", "1e9"), "--validate: '1e9' is not a number"),
        (("--excite", "nan"), "--excite: 'nan' is not a number"),
        (("--seed", "-1"), "--seed"),
        (("--robot", "franka_panda"), "inertial"),  # an arm without link figures cannot be simulated
    ],
)
def test_wrong_options_of_the_demonstration(thetad: Any, options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    thetad("demo", "--output", tmp_path / "out", *options).refused(words)

"""The configuration: every mistake is named with its file, its key and, if misspelt, the likely one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rt_core.online import OnlineSettings
from service.config.daemon import DaemonConfig
from service.config.load import Config, ConfigError, check_settings, load_config, parse_config
from tests.lab.files import FILES

ROOT = Path(__file__).resolve().parents[4]
GOOD = (FILES / "daemon.toml").read_text(encoding="utf-8")


def table() -> dict[str, Any]:
    return {"daemon": {}, "arm": [{"name": "a", "robot": "emps", "driver": {"kind": "replay", "recording": "x.mcap"}}]}


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "daemon.toml"
    path.write_text(GOOD)
    config = load_config(path)
    left, right = config.arm
    assert config.state_dir == tmp_path / "state"
    assert left.driver.kind == "replay"
    assert left.driver.recording == tmp_path / "data" / "x.mcap"
    assert left.driver.speed == "max"
    assert config.recording_dir(left) == tmp_path / "rec"
    assert right.driver.kind == "sim"
    assert (right.driver.pace, right.driver.settings.rate_hz) == (2, 500)
    assert config.find("right") is right
    assert Config.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("daemon", "served"),
    [
        ({}, "127.0.0.1"), ({"bind": "127.0.0.5"}, "127.0.0.5"), ({"http": False}, ""), ({"require_keys": True}, ""),
        ({"bind": "192.168.7.2"}, ""), ({"bind": "192.168.7.2", "http_token_file": "token"}, "127.0.0.1"),
    ],
)  # fmt: skip
def test_http_is_on_loopback_and_never_beside_keys_without_a_token(daemon: dict[str, Any], served: str) -> None:
    found = DaemonConfig.model_validate_json(json.dumps(daemon))
    assert (found.http_bind if found.serves_http else "") == served


Change = Callable[[dict[str, Any]], object]


def sim(**settings: Any) -> Change:
    return lambda d: d["arm"][0].update(driver={"kind": "sim", **settings})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["daemon"].update(frame_port=1), ["daemon.frame_port", "did you mean 'frames_port'"]),
        (lambda d: d["daemon"].update(frames_port=70000), ["daemon.frames_port", "65535", "70000"]),
        (lambda d: d["daemon"].update(frames_port="9870"), ["daemon.frames_port", "'9870'"]),
        (lambda d: d["daemon"].update(frames_port=9871), ["daemon", "must differ"]),
        (lambda d: d["daemon"].update(mirror_port=9871), ["daemon", "must differ"]),
        (lambda d: d["daemon"].update(mirror_port=9872, mirror_hz=0), ["daemon.mirror_hz"]),
        (lambda d: d["daemon"].update(require_keys=True, http=True), ["daemon: http", "http_token_file"]),
        (lambda d: d["daemon"].update(bind="0.0.0.0"), ["daemon.bind", "loopback"]),
        (lambda d: d["daemon"].update(bind="localhost"), ["daemon.bind", "loopback"]),
        (lambda d: d["daemon"].update(hang_s=float("nan")), ["daemon.hang_s", "finite"]),
        (lambda d: d.update(demon={}), ["demon", "did you mean 'daemon'"]), (lambda d: d.update(base="/"), ["base"]),
        (lambda d: d.pop("arm"), ["no [[arm]]"]), (lambda d: d["arm"].append(d["arm"][0]), ["'a'", "differ"]),
        (lambda d: d["arm"][0].update(name="a/b"), ["arm[0].name", "a/b"]),
        (lambda d: d["arm"][0].pop("robot"), ["arm[0].robot", "missing"]),
        (lambda d: d["arm"][0]["driver"].update(kind="canopen"), ["arm[0].driver", "canopen", "replay", "ads"]),
        (lambda d: d["arm"][0]["driver"].pop("kind"), ["arm[0].driver", "kind"]),
        (lambda d: d["arm"][0]["driver"].update(sped=1), ["arm[0].driver.sped", "did you mean 'speed'"]),
        (lambda d: d["arm"][0]["driver"].update(speed="fast"), ["arm[0].driver.speed", "'max'"]),
        (lambda d: d["arm"][0]["driver"].update(loop="yes"), ["arm[0].driver.loop", "boolean"]),
        (sim(motion={"amplitud": 0.1}), ["arm[0].driver.motion.amplitud", "did you mean 'amplitude'"]),
        (sim(enable=True), ["arm[0].driver: enable", 'set mode = "csp" or "cst"']),
        (sim(mode="csp", pace="max"), ["arm[0].driver: pace", "give a number"]),
        (sim(mode="csp", motion={"seed": 2}), ["arm[0].driver: motion", "leave motion out"]),
        (sim(mode="csp", faults=[{"kind": "silense"}]), ["arm[0].driver.faults[0].kind", "silence"]),
        (lambda d: d["arm"][0].update(motion={}), ["arm[0]: motion", 'only drives in mode "csp" follow it']),
        (sim(settings={"rate_hz": -1.0}), ["arm[0].driver.settings.rate_hz"]),
        (lambda d: d["arm"][0].update(safety={"permit_s": 700.0}), ["arm[0].safety", "permit_max_s = 600"]),
        (lambda d: d["arm"][0].update(safety={"heart_beat_s": 1.0}), ["did you mean 'heartbeat_s'"]),
        (lambda d: d["arm"][0].update(safety={"heartbeat_s": 0.2}), ["arm[0].safety.heartbeat_s", "0.5"]),
        (lambda d: d["arm"][0].update(safety={"silence_s": 0.05}), ["arm[0].safety.silence_s", "0.1"]),
        (lambda d: d["arm"][0].update(state={"every_s": 1e9}), ["arm[0].state.every_s", "3600"]),
    ],
)  # fmt: skip
def test_each_mistake_is_named(change: Change, words: list[str]) -> None:
    content = table()
    change(content)
    with pytest.raises(ConfigError) as caught:
        parse_config(content, "my.toml", Path("/base"))
    message = str(caught.value)
    assert message.startswith("my.toml: ")
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"[daemon\n", "line 1"), (b"x = 2020-01-01", "dates"), (b"\xed\xa0\x80", "utf-8"), (None, "No such file")],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes | None, word: str) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=word) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data(), JSON)
def test_any_value_anywhere_is_accepted_or_refused_with_its_place(data: st.DataObject, value: Any) -> None:
    content = table()
    target = data.draw(st.sampled_from([content, content["daemon"], content["arm"][0], content["arm"][0]["driver"]]))
    known = ["daemon", "arm", "name", "robot", "driver", "hang_s", "speed", "span", "kind", "estimator", "recorder"]
    target[data.draw(st.sampled_from(known) | st.text(max_size=5))] = value
    message = ""
    try:
        assert json.loads(parse_config(content, "my.toml", Path("/base")).model_dump_json())["arm"]
    except ConfigError as error:
        message = str(error)
    assert not message or message.startswith("my.toml: ")


def test_settings_of_the_estimator_are_checked_by_name_and_range() -> None:
    where = "my.toml: arm[0].estimator"
    assert check_settings(OnlineSettings, {"memory_s": 7}, where).memory_s == 7
    for bad, words in (
        ({"memry_s": 1.0}, "estimator.memry_s: unknown key; did you mean 'memory_s'"),
        ({"memory_s": "long"}, "estimator.memory_s: .*number"),
        ({"memory_s": -1.0}, "estimator.memory_s: .*greater than 0"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_settings(OnlineSettings, bad, where)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_shipped_configurations_are_valid(path: Path) -> None:
    for index, arm in enumerate(load_config(path).arm):
        check_settings(OnlineSettings, arm.estimator, f"{path}: arm[{index}].estimator")

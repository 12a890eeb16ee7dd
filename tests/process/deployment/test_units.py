"""The units and the other files of deploy/, judged by systemd's own tools and by this kernel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.load import load_config
from service.supervisor.daemon import EXIT_INPUT
from tests.lab.deployment.units import DEPLOY, PROGRAM, Unit, privileges

#: Exposure that `systemd-analyze security` may find, of 10.
MAX_EXPOSED = {"thetad.service": 1.6, "thetad-ethercat": 2.4, "thetad-card@enp3s0.service": 1.8}
CARD = "lab-nic0"
ETHTOOL = shutil.which("ethtool") is not None

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's tools are not installed")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A folder with all units as installed, whose programs are there."""
    for name in ("thetad.service", "thetad-card@.service"):
        text = (DEPLOY / name).read_text().replace(PROGRAM, str(Path(sys.executable).with_name("thetad")))
        (tmp_path / name).write_text(text.replace("/usr/sbin/ethtool", "/usr/sbin/ip"))
    return tmp_path


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_units_are_valid(units: Path) -> None:
    (units / "thetad.service.d").mkdir()
    shutil.copy(DEPLOY / "thetad-ethercat.conf", units / "thetad.service.d" / "ethercat.conf")
    shutil.copy(units / "thetad-card@.service", units / "thetad-card@enp3s0.service")
    for unit in ("thetad.service", "thetad-card@enp3s0.service"):
        done = analyze("verify", "--man=no", units / unit)
        assert done.returncode == 0, done.stderr
        assert str(units) not in done.stderr, done.stderr  # a warning names the file


@pytest.mark.parametrize("name", MAX_EXPOSED)
def test_units_expose_little(units: Path, name: str) -> None:
    path = units / ("thetad.service" if name == "thetad-ethercat" else name)
    if name == "thetad-ethercat":
        (units / "thetad.service.d").mkdir()
        shutil.copy(DEPLOY / "thetad-ethercat.conf", units / "thetad.service.d" / "ethercat.conf")
    elif "@" in name:
        shutil.copy(units / "thetad-card@.service", path)
    tenths = round(10 * MAX_EXPOSED[name])
    done = analyze("security", "--offline=true", f"--threshold={tenths}", "--no-pager", path)
    (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert done.returncode == 0, done.stdout
    assert float(found) <= MAX_EXPOSED[name]


def test_a_start_is_tried_until_it_succeeds() -> None:
    """At power-on a PLC, the drives or an address may come minutes after this computer."""
    unit = Unit("thetad.service")
    assert unit.one("StartLimitIntervalSec") == "0"
    assert unit.one("Restart") == "on-failure"
    assert unit.one("RestartPreventExitStatus") == str(EXIT_INPUT)  # not a wrong configuration
    assert "network-online.target" in unit.words("Wants")
    assert "network-online.target" in unit.words("After")
    assert unit.one("MemoryDenyWriteExecute") == unit.one("RestrictRealtime") == "no"  # for Numba and for real time


@pytest.mark.skipif(os.geteuid() != 0, reason="network name spaces need root")
def test_the_card_is_set_up_with_no_more_than_the_unit_gives() -> None:
    """The unit's own lines, on a virtual card in a name space of its own; without ethtool those of `ip` alone."""
    unit = Unit("thetad-card@.service")
    lines = [line.replace("%I", CARD) for line in unit.values["ExecStart"]]
    assert all(line.startswith("-") for line in lines if "ethtool" in line)
    wanted = [line.removeprefix("-") for line in lines if "ethtool" not in line or ETHTOOL]
    given = " ".join(privileges(unit)).replace("--securebits +noroot", "")
    # A line that a card cannot do ends otherwise than one that may not be done, or is no command of the tool.
    script = [f"ip link add {CARD} type veth peer name far", "ip link set far up"]
    script += [f"ethtool -K {CARD} gro on gso on tso on"] if ETHTOOL else []
    script += [f"{given} {line} 2>&1 || echo failed: {line}" for line in wanted]
    script += [f"ip -d link show {CARD}", *([f"ethtool -k {CARD}"] if ETHTOOL else [])]
    command = ["unshare", "--net", "sh", "-c", "set -e\n" + "\n".join(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "NOARP" in done.stdout
    assert "MULTICAST" not in done.stdout
    assert re.search(r"<[^>]*\bUP\b", done.stdout)
    assert "addrgenmode none" in done.stdout
    if ETHTOOL:
        for feature in ("generic-receive-offload", "generic-segmentation-offload", "tcp-segmentation-offload"):
            assert f"{feature}: off" in done.stdout
    told = re.findall(r"^(?:netlink error: (.*)\n)?failed: \S+ (\S+)", done.stdout, re.M)
    # A virtual card has neither interrupts to collect nor a line that could sleep: that these help is not shown here.
    assert told == ([("Operation not supported", each) for each in ("-C", "-C", "--set-eee")] if ETHTOOL else [])


@pytest.mark.parametrize("file", sorted((DEPLOY / "sysctl.d").iterdir()), ids=lambda path: path.name)
def test_kernel_settings_are_known_to_this_kernel(file: Path) -> None:
    settings = re.findall(r"^(-?)([a-z_.]+) = (-?\d+)$", file.read_text(), re.M)
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    assert len(settings) == len(lines) > 3
    for optional, key, value in settings:
        path = Path("/proc/sys", key.replace(".", "/"))
        assert optional or path.exists(), key
        if path.exists():
            assert path.read_text().strip().lstrip("-").isdecimal(), f"{key} is no number; {value} would not fit"


def test_the_configuration_that_is_installed_is_one() -> None:
    config = load_config(DEPLOY / "thetad.toml")
    unit = Unit("thetad.service")
    assert config.state_dir == Path("/var/lib", unit.one("StateDirectory"))
    assert config.daemon.runtime_dir == Path("/run", unit.one("RuntimeDirectory"))

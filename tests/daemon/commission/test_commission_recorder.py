"""The recorder during commissioning, also after the command was killed."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.files.recordings.recording import read_recording
from rt_core.types import FloatArray
from service.client import Control
from service.commission._site import Site
from service.commission.errors import StepFailedError
from service.io.trajectory_file import Trajectory
from service.supervisor.launch import DaemonProcess
from tests.lab.command_line import ROOT
from tests.lab.daemon.daemons import await_status
from tests.lab.daemon.ethercat_rig import JOINTS, N
from tests.lab.daemon.runs import Client, commissionable
from tests.lab.daemon.shared import Keeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
#: As a call of the command that is killed while the arm moves: nothing is cleaned up.
KILLED = """
import os, sys
from pathlib import Path
from service.client import Control
from service.commission._site import Site
from tests.daemon.commission.test_commission_recorder import there_and_back

site = Site(Control(sys.argv[1]), "right")
site.journal = Path(sys.argv[2])
site.move(there_and_back, 4.0, on_progress=lambda said: os._exit(9) if said["run"]["t_s"] > 0.2 else None)
"""


def there_and_back(here: FloatArray, _measured: FloatArray) -> Trajectory:
    """Return a motion of every joint by 0.05 rad and back, in four seconds."""
    share = 0.5 - 0.5 * np.cos(np.linspace(0.0, 2.0 * np.pi, 81))
    return Trajectory(tuple(JOINTS), ("rad",) * N, rate_hz=20.0, table=here + 0.05 * share[:, None])


@pytest.fixture
def daemon(keeper: Keeper) -> DaemonProcess:
    return keeper.get(commissionable).daemon


@pytest.fixture
def folder(keeper: Keeper) -> Path:
    return keeper.get(commissionable).path


def test_a_start_tells_no_file_of_before_and_who_wants_it(daemon: DaemonProcess) -> None:
    with Control(daemon.endpoints["control"]) as control:
        for owner in ("me", "somebody else"):
            assert control.request("record", 10.0, arm="right", action="start", owner=owner)["path"] == ""

            def recording(found: dict[str, Any], owner: str = owner) -> bool:
                info = found["right/recorder"]["info"]
                return bool(info.get("owner") == owner and info["state"] == "recording")

            info = await_status(control, recording)["right/recorder"]["info"]
            assert control.request("record", 10.0, arm="right", action="stop")["path"] == info["path"] != ""
        found = await_status(control, lambda found: found["right/recorder"]["info"].get("state") == "off")
        assert found["right/recorder"]["info"]["owner"] == ""


def test_a_call_that_was_killed_goes_on_with_its_recorder_and_no_other(daemon: DaemonProcess, folder: Path) -> None:
    journal, endpoint = folder / "recording.txt", daemon.endpoints["control"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, endpoint, str(journal)], env=os.environ | {"PYTHONPATH": path}, timeout=120.0
    )  # fmt: skip
    assert killed.returncode == 9
    with Client(daemon.endpoints, "right") as client:
        client.watch()  # for want of a heartbeat it has stopped
    with Control(endpoint) as control:
        found = await_status(control, lambda found: found["right/recorder"]["info"].get("state") == "recording")
        left = found["right/recorder"]["info"]["path"]
        other = Site(control, "right")
        other.journal = folder / "another.txt"
        with pytest.raises(StepFailedError, match="is on already"):
            other.move(there_and_back, 4.0)
        again = Site(control, "right")
        again.journal = journal
        move = again.move(there_and_back, 4.0)
        assert move.stopped == ""
        assert str(move.path) != left
        assert np.ptp(read_recording(move.path).channels["q"], axis=0).min() > 0.04
        assert read_recording(left).duration_s > 0.2
        assert not journal.exists()

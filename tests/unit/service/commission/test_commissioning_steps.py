"""The order of steps and their folder: what is over stays, what failed is done again, other requests are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivers.files.robots.file import load_robot
from service.commission.commissioning import STEP_NAMES, StepProgress, commission
from service.commission.context import Context, SkippedError, Step
from service.commission.errors import CommissionError, DeclinedError, StepFailedError
from service.commission.folder import Folder
from service.commission.rehearsal import Rehearsal
from service.commission.settings import CommissionSettings, Payload
from service.commission.steps.joints import open_checks
from service.config.load import parse_config

ROBOT = load_robot("space6")
NAMES = ("first", "second", "third")


class Log:
    """Steps that write down when they run, and do what they are told to."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.told: list[StepProgress] = []
        self.fails: str = ""
        self.steps = tuple(Step(name, f"the {name}", self._step(name), lambda _: 10.0) for name in NAMES)

    def _step(self, name: str) -> Any:
        def run(context: Context) -> tuple[str, dict[str, Any]]:
            self.ran.append(name)
            context.report(0.5, "half")
            if self.fails == name:
                raise StepFailedError(f"{name} is wrong", {"partly": 1})
            if name == "second":
                raise SkippedError("not needed")
            return f"{name} is done", {"value": NAMES.index(name)}

        return run


def context(folder: Path, **changes: Any) -> Context:
    settings = replace(CommissionSettings(), **changes)
    return Context(ROBOT, settings, Folder(folder, NAMES), Rehearsal(ROBOT, folder))


def identity(
    settings: CommissionSettings | None = None, name: str = "space6", sha: str = "abc", arm: str | None = None
) -> Any:
    chosen = (settings or CommissionSettings()).as_dict()
    return {"robot": {"name": name, "sha256": sha}, "arm": arm, "settings": chosen}


def test_steps_are_done_once_and_skipped_ones_count(tmp_path: Path) -> None:
    log = Log()
    found = commission(context(tmp_path), log.told.append, log.steps)
    assert [step["state"] for step in found.steps] == ["done", "skipped", "done"]
    assert (found.failed, found.validated) == ("", False)
    assert found.find("third")["value"] == 2
    assert [round(told.left_s) for told in log.told] == [30, 25, 20, 15, 10, 5]
    assert commission(context(tmp_path), log.told.append, log.steps).steps == found.steps
    assert log.ran == list(NAMES)
    assert json.loads((tmp_path / "01_first.json").read_text(encoding="utf-8")) == found.steps[0]


def test_a_failed_step_ends_it_and_is_done_again(tmp_path: Path) -> None:
    log = Log()
    log.fails = "third"
    found = commission(context(tmp_path), log.told.append, log.steps)
    assert (found.failed, found.reason) == ("third", "third is wrong")
    assert found.find("third")["partly"] == 1
    log.fails = ""
    assert commission(context(tmp_path), log.told.append, log.steps).failed == ""
    assert log.ran == ["first", "second", "third", "third"]


def test_repeating_from_a_step_forgets_it_and_what_comes_after(tmp_path: Path) -> None:
    log = Log()
    folder = Folder(tmp_path, NAMES)
    folder.begin(identity(), None)
    commission(context(tmp_path), log.told.append, log.steps)
    folder.begin(identity(replace(CommissionSettings(), periods=7)), "second")
    assert folder.result("first") is not None
    assert folder.result("second") is None
    commission(context(tmp_path), log.told.append, log.steps)
    assert log.ran == [*NAMES, "second", "third"]


def test_options_of_steps_that_are_kept_must_not_change(tmp_path: Path) -> None:
    folder = Folder(tmp_path, STEP_NAMES)
    folder.begin(identity(), None)
    other = identity(replace(CommissionSettings(), sweep_s=4.0))
    with pytest.raises(CommissionError, match=r"step friction has been done with sweep_s = 2\.5.*--from friction"):
        folder.begin(other, "design")
    folder.begin(other, "friction")


def test_a_step_is_void_without_those_before_it(tmp_path: Path) -> None:
    """As a kill while steps are forgotten may leave it."""
    log = Log()
    commission(context(tmp_path), log.told.append, log.steps)
    (tmp_path / "02_second.json").unlink()
    assert Folder(tmp_path, NAMES).result("third") is None
    commission(context(tmp_path), log.told.append, log.steps)
    assert log.ran == [*NAMES, "second", "third"]


def test_what_says_how_a_real_arm_is_now_is_done_again(tmp_path: Path) -> None:
    log = Log()
    log.fails = "third"  # something is left to do
    steps = (replace(log.steps[0], repeated=True), *log.steps[1:])
    for real, ran in ((False, 1), (True, 2)):
        here = context(tmp_path / str(real))
        here.place.rehearsal = not real
        for _ in range(2):
            commission(here, log.told.append, steps)
        assert log.ran.count("first") == ran
        log.ran.clear()
    log.fails = "first"  # as the arm is now; what was found before stays
    assert commission(here, log.told.append, steps).failed == "first"
    log.fails = ""
    assert commission(here, log.told.append, steps).failed == ""
    assert log.ran == ["first", "first", "third"]


def test_what_is_not_told_is_named_unless_somebody_has_seen_it() -> None:
    def check(joint: str, what: str, kind: str = "", verdict: str = "cannot_tell") -> dict[str, str]:
        return {"joint_name": joint, "check": what, "verdict": verdict, "kind": kind}

    gravity, friction = "gravity as described", "friction takes power"
    checks = [check("a", gravity), check("b", gravity), check("b", friction), check("c", gravity, verdict="ok")]
    assert open_checks({"checks": checks}) == [f"{gravity} (a, b)", f"{friction} (b)"]
    assert open_checks({"checks": checks, "seen": ["a", "b", "c"]}) == [f"{friction} (b)"]
    # seen to move as described although its gravity says otherwise: that stays open
    assert open_checks({"checks": [check("a", gravity, "masses")], "seen": ["a"]}) == [f"{gravity} (a)"]


def test_another_commissioning_in_the_folder_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new", NAMES)
    folder.begin(identity(), None)
    folder.begin(identity(), None)
    for other, words in (
        (identity(name="arm7"), "holds the commissioning of space6"),
        (identity(arm="panda"), "holds the commissioning of space6"),
        (identity(sha="def"), "has changed since: begin again by --from first"),
        (identity(replace(CommissionSettings(), periods=7)), "was begun with periods = 3, not 7"),
        (identity(replace(CommissionSettings(), payload=Payload(2.0, (0.0, 0.0, 0.1)))), "payload = None"),
    ):
        with pytest.raises(CommissionError, match=words):
            folder.begin(other, None)
    with pytest.raises(CommissionError, match="has changed since"):
        folder.begin(identity(sha="def"), "second")
    folder.begin(identity(sha="def"), "first")


def test_drives_that_have_changed_are_looked_at_again(tmp_path: Path) -> None:
    """Counts per turn, gears and signs are those of `[arm.driver]`."""

    def of(**axis: Any) -> dict[str, Any]:
        driver = {"kind": "ads", "mode": "csp", "net_id": "5.1.2.3.1.1", "axis": [{"joint": "carriage"} | axis]}
        table = {"arm": [{"name": "panda", "robot": "emps", "driver": driver}]}
        drives = parse_config(table, "test", tmp_path).arm[0].driver_sha256
        return dict(identity(arm="panda") | {"drives": drives})

    folder = Folder(tmp_path / "out", STEP_NAMES)
    folder.begin(of(), None)
    folder.begin(of(gear_ratio=1.0), None)
    for change in ({"gear_ratio": 100.0}, {"sign": -1}):
        for again_from in (None, "joints", "run"):
            with pytest.raises(CommissionError, match=r"\[arm.driver\] of panda has changed.*--from signals"):
                folder.begin(of(**change), again_from)
    folder.begin(of(sign=-1), "signals")
    folder.begin(of(sign=-1), None)


def test_a_folder_of_something_else_is_left_alone_and_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CommissionError, match="is not empty"):
        Folder(tmp_path, NAMES).begin(identity(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "01_first.json").write_text("{", encoding="utf-8")
    with pytest.raises(CommissionError, match=r"01_first\.json: cannot be read"):
        commission(context(tmp_path), print, Log().steps)


def test_who_is_asked_may_decline(tmp_path: Path) -> None:
    here = context(tmp_path)
    here.confirm("Move?")  # nobody to be asked: a rehearsal
    here.ask = lambda question: question == "Move?"
    here.confirm("Move?")
    with pytest.raises(DeclinedError):
        here.confirm("Move far?")

"""Folder of a commissioning: one file per step, from which a later call resumes.

`commission.json` holds the subject and the settings; `03_joints.json` and the like hold the results of the steps. A
step whose file has the state "done" or "skipped" is not repeated.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivers.files.atomic_write import write_text
from service.commission.errors import CommissionError
from service.protocol.json_values import json_values

FORMAT = "thetad-commission/1"
#: Settings used by each step; a kept step must have had the same ones.
USED_BY = {
    "joints": ("small_rad", "small_m"), "friction": ("speeds", "sweep_s", "room"),
    "payload": ("payload", "sweep_s", "room"), "design": ("period_s", "harmonics", "starts", "seed", "excite"),
    "run": ("first_speed", "periods", "validation_periods"), "identify": ("method",),
    "validate": ("least_R", "promote"),
}  # fmt: skip
#: First step that depends on the drives; file of the joints that were seen moving.
_DRIVES_FROM, _SEEN = "signals", "seen.json"
_OVER = ("done", "skipped")
_FILE = "commission.json"


def simulated_seed(path: Path, otherwise: int) -> int:
    """Return the seed of the arm that the rehearsal in a folder simulates, which is kept for all its calls.

    Raises `CommissionError`: the folder cannot be read.
    """
    file = path / _FILE
    found = Folder.read(file) if file.exists() else {}
    seed = found.get("simulated_seed", otherwise)
    return seed if type(seed) is int else otherwise


class Folder:
    """Files of a commissioning at `path`; `steps` are the names of its steps, in order."""

    def __init__(self, path: Path, steps: Sequence[str]) -> None:
        self.path = path
        self._steps = tuple(steps)
        self._arm: dict[str, Any] = {}  # the arm to which `seen` applies

    def begin(self, identity: dict[str, Any], again_from: str | None) -> None:
        """Create the folder, or check that it belongs to the same commissioning.

        `identity` holds robot, arm, hash of its drives, and settings, as JSON values. The step `again_from` and those
        after it are forgotten; their settings may change.

        Raises `CommissionError`: it holds another commissioning, or cannot be read.
        """
        file = self.path / _FILE
        wanted = json_values({"format": FORMAT} | identity)
        self._arm = {key: wanted.get(key) for key in ("robot", "arm", "drives")}
        if file.exists():
            found = self.read(file)
            if found.get("format") != FORMAT:
                raise CommissionError(f"{file}: is not the folder of a commissioning: name another folder")
            self._compare(found, wanted, again_from)
        elif self.path.exists() and any(self.path.iterdir()):
            raise CommissionError(f"{self.path}: is not empty and holds no commissioning: name another folder")
        if again_from is not None:  # before the settings, so that results left by a kill match the settings in the file
            self.forget(again_from)
        write_text(file, json.dumps(wanted, indent=1) + "\n")

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any], again_from: str | None) -> None:
        robot, known = wanted["robot"], found.get("robot", {})
        if found.get("arm") != wanted["arm"] or known.get("name") != robot["name"]:
            was = f"{known.get('name')} ({found.get('arm') or 'rehearsal'})"
            raise CommissionError(f"{self.path}: holds the commissioning of {was}: name another folder")
        first = self._steps[0]
        if known.get("sha256") != robot["sha256"] and again_from != first:
            raise CommissionError(
                f"{self.path}: the description of {robot['name']} has changed since: begin again by --from {first}, or "
                "name another folder"
            )
        if found.get("drives") != wanted.get("drives"):
            begins = self._steps if again_from is None else self._steps[: self._steps.index(again_from)]
            if _DRIVES_FROM in begins:
                raise CommissionError(
                    f"{self.path}: [arm.driver] of {wanted['arm']} has changed since its signals were checked: begin "
                    f"again by --from {_DRIVES_FROM}, or name another folder"
                )
        old, new = found.get("settings", {}), wanted["settings"]
        changed = [name for name in new if old.get(name) != new[name]]
        if changed and again_from is None:
            raise CommissionError(
                f"{self.path}: was begun with {changed[0]} = {old.get(changed[0])!r}, not {new[changed[0]]!r}: "
                "give the same options, or say by --from STEP from where on the new ones hold"
            )
        if again_from is None:
            return
        kept = self._steps[: self._steps.index(again_from)]
        for name in changed:
            user = next((step for step in kept if name in USED_BY.get(step, ())), None)
            if user is not None:
                raise CommissionError(
                    f"{self.path}: step {user} has been done with {name} = {old.get(name)!r}, not {new[name]!r}: give "
                    f"the same option, or repeat it by --from {user}"
                )

    def forget(self, first: str) -> None:
        """Delete the results of a step and those after it, the last one first."""
        for step in reversed(self._steps[self._steps.index(first) :]):
            self.file(step).unlink(missing_ok=True)

    def seen(self) -> list[str]:
        """Return the joints that somebody has seen moving as described, with this description and these drives."""
        file = self.path / _SEEN
        found = self.read(file) if file.exists() else {}
        return [str(name) for name in found.get("joints", [])] if found.get("of") == self._arm else []

    def see(self, joint: str, *, as_described: bool = True) -> list[str]:
        """Note that somebody has seen a joint move, and return all joints seen moving as described."""
        joints = [name for name in self.seen() if name != joint or as_described]
        joints += [joint] * (as_described and joint not in joints)
        write_text(self.path / _SEEN, json.dumps({"of": self._arm, "joints": joints}, indent=1) + "\n")
        return joints

    def file(self, step: str) -> Path:
        """Return the path of a step's file."""
        return self.path / f"{self._steps.index(step) + 1:02d}_{step}.json"

    def result(self, step: str) -> dict[str, Any] | None:
        """Return the result of a finished step; raises `CommissionError` if the file cannot be read."""
        for name in self._steps[: self._steps.index(step) + 1]:  # a result is void without those of the steps before it
            found = self.found(name)
            if found is None or found.get("state") not in _OVER:
                return None
        return found

    def found(self, step: str) -> dict[str, Any] | None:
        """Return the file of a step, also of a failed one; raises `CommissionError` if it cannot be read."""
        file = self.file(step)
        return self.read(file) if file.exists() else None

    def write(self, step: str, state: str, summary: str, seconds: float, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result of a step, and return it as it will be read."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        head = {"step": step, "state": state, "summary": summary, "time": now, "seconds": round(seconds, 1)}
        document: dict[str, Any] = json_values(head | result)
        write_text(self.file(step), json.dumps(document, indent=1, allow_nan=False) + "\n")
        return document

    @staticmethod
    def read(file: Path) -> dict[str, Any]:
        """Read a file of a folder; raises `CommissionError` if it holds no map."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommissionError(f"{file}: cannot be read: {error}; delete it to do this step again") from error
        if not isinstance(found, dict):
            raise CommissionError(f"{file}: holds no map; delete it to do this step again")
        return found

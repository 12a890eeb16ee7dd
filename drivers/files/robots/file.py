"""Loading of robot descriptions: `configs/robots/NAME.toml`, or a URDF.

Besides the model, a `RobotFile` has a `source`: JSON-able data, with the text of a URDF inside, from which
`robot_from_source` makes the same robot again without any file.
"""

import difflib
import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from drivers.files.robots._build import BuildError, build_model
from drivers.files.robots._schema import IdentificationSettings, ModelTable, RobotTable, describe_errors
from drivers.files.shipped import shipped
from rt_core.model.robot import RobotModel
from rt_core.model.urdf import UrdfError, reduced_urdf

__all__ = [
    "IdentificationSettings", "RobotError", "RobotFile", "RobotNotFoundError", "known_robots", "load_robot",
    "robot_from_source",
]  # fmt: skip

_SHIPPED = shipped("configs/robots")


class RobotError(ValueError):
    """An invalid robot description; the message has a line with file, field and fault for each of `problems`."""

    def __init__(self, path: str, problems: list[tuple[str, str]]) -> None:
        self.path = path
        self.problems = tuple(problems)
        lines = [f"{path}: {field}: {what}" if field else f"{path}: {what}" for field, what in problems]
        super().__init__("\n".join(lines))


class RobotNotFoundError(RobotError, FileNotFoundError):
    """The robot or its file does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class RobotFile:
    """A robot description, checked and ready to use."""

    model: RobotModel
    identification: IdentificationSettings
    sha256: str  # of the content, without layout, comments and description text
    path: Path | None  # None if it came from a source
    source: dict[str, Any]  # JSON-able and self-contained, for `robot_from_source`
    warnings: tuple[str, ...] = ()  # one sentence each


def known_robots(base: Path | None = None) -> list[str]:
    """Return the names that `load_robot` finds, sorted."""
    return sorted({path.stem for folder in _folders(base) if folder.is_dir() for path in folder.glob("*.toml")})


def load_robot(ref: str | Path, base: Path | None = None) -> RobotFile:
    """Load a robot by name or path.

    `ref` is a name such as `"franka_panda"`, looked up as `configs/robots/NAME.toml` under the working directory, then
    under `base` (a further directory, such as that of the file that names the robot), then among the shipped robots; or
    a path to a `.toml` or `.urdf` file.

    Raises `RobotNotFoundError`: the robot or file does not exist; `RobotError`: the file is no valid description.
    """
    path = _find(ref, base)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RobotError(str(path), [("", f"not UTF-8 text: {error.reason} at byte {error.start}")]) from None
    except OSError as error:
        raise RobotError(str(path), [("", f"cannot be read: {error.strerror}")]) from error
    if path.suffix.lower() == ".urdf":
        name = "".join(c if c.isalnum() and c.isascii() else "_" for c in path.stem).strip("_") or "robot"
        return _robot({"format": 1, "name": name, "kinematics": "urdf", "urdf_text": text}, str(path), path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RobotError(str(path), [("", f"not valid TOML: {error}")]) from None
    except RecursionError:
        raise RobotError(str(path), [("", "not valid TOML: nested too deeply")]) from None
    return _robot(data, str(path), path)


def robot_from_source(source: dict[str, Any], where: str = "robot source") -> RobotFile:
    """Make a robot from `RobotFile.source`; `where` names it in messages; raises `RobotError`."""
    return _robot(source, where, None)


def _folders(base: Path | None) -> list[Path]:
    starts = [Path.cwd()] if base is None else [Path.cwd(), Path(base)]
    return [*(start / "configs" / "robots" for start in starts), _SHIPPED]


def _find(ref: str | Path, base: Path | None) -> Path:
    path = Path(ref)
    if isinstance(ref, Path) or path.suffix.lower() in (".toml", ".urdf") or len(path.parts) != 1:
        for candidate in [path] if base is None else [path, Path(base) / path]:
            if candidate.is_file():
                return candidate
        what = "is a directory, expected a .toml or .urdf file" if path.is_dir() else "no such file"
        raise RobotNotFoundError(str(ref), [("", what)])
    for folder in _folders(base):
        candidate = folder / f"{ref}.toml"
        if candidate.is_file():
            return candidate
    known = known_robots(base)
    close = difflib.get_close_matches(str(ref), known, 1)
    hint = f'; did you mean "{close[0]}"?' if close else "."
    what = (
        f"no robot of that name{hint} Available: {', '.join(known) or 'none'}. A path to a .toml or .urdf file does too"
    )
    raise RobotNotFoundError(f'robot "{ref}"', [("", what)])


def _robot(data: dict[str, Any], where: str, path: Path | None) -> RobotFile:
    try:
        table = RobotTable.model_validate(data)
    except ValidationError as error:
        raise RobotError(where, describe_errors(error.errors(), data)) from None
    table = _with_urdf_text(table, where, path)
    try:
        model, warnings = build_model(table)
    except BuildError as error:
        field = "" if where.lower().endswith(".urdf") and error.field == "urdf" else error.field
        raise RobotError(where, [(field, error.what)]) from None
    source = table.model_dump(exclude_none=True)
    hashed = {key: value for key, value in source.items() if key not in ("description", "payload")}
    # Keys added later count only if they differ from the default, so that older descriptions keep their hash.
    fields = ModelTable.model_fields
    hashed["model"] = {
        k: v for k, v in source["model"].items() if not (k.startswith("friction_") and v == fields[k].default)
    }
    if table.environment == "ground":
        del hashed["environment"]
    if table.urdf_text is not None:
        hashed["urdf_text"] = reduced_urdf(table.urdf_text)  # shapes do not affect the dynamics
    canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    return RobotFile(model, table.identification, digest, path, source, warnings)


def _with_urdf_text(table: RobotTable, where: str, path: Path | None) -> RobotTable:
    """Return the description with its URDF read in and reduced to what is used."""
    if table.kinematics != "urdf":
        return table
    text = table.urdf_text
    file = where
    if table.urdf is not None:
        if text is not None:
            raise RobotError(where, [("urdf", "urdf and urdf_text are both given; keep one")])
        if path is None:
            raise RobotError(where, [("urdf", "a path has no meaning here; put the URDF itself in urdf_text")])
        urdf = path.parent / table.urdf
        file = str(urdf)
        try:
            text = urdf.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RobotError(file, [("", f"not UTF-8 text: {error.reason} at byte {error.start}")]) from None
        except OSError as error:
            raise RobotError(where, [("urdf", f'cannot read "{urdf}": {error.strerror}')]) from error
    if text is None:
        return table
    try:
        reduced = reduced_urdf(text, shapes=True)
    except UrdfError as error:
        raise RobotError(file, [("", str(error))]) from None
    return table.model_copy(update={"urdf": None, "urdf_text": reduced})

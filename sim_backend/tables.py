"""TOML tables of simulations: base class, reading a file, and texts of validation errors."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sim_backend.errors import SimulationConfigError


class Table(BaseModel):
    """A frozen table that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_table(path: Path, error_type: type[SimulationConfigError]) -> dict[str, Any]:
    """Return the content of a TOML file; raises `error_type`, which names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise error_type(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise error_type(f"{path}: not valid TOML: {error}") from error


def error_text(error: ValidationError, table: type[Table], parts: Mapping[str, type[Table]]) -> str:
    """Describe what is wrong with a table, whose arrays of tables are `parts`; suggest the closest known keys."""
    texts = []
    for item in error.errors():
        place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in item["loc"]).lstrip(".")
        message = str(item["msg"]).removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            known = parts.get(str(item["loc"][0]), table).model_fields
            close = difflib.get_close_matches(str(item["loc"][-1]), list(known), 1)
            message = "unknown key" + (f"; did you mean {close[0]!r}?" if close else "")
        texts.append(f"{place}: {message}" if place else message)
    return "; ".join(texts)

"""TOML tables of simulations: base class, and reading a file."""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

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

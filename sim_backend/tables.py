"""Base class of the TOML tables of simulations."""

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A frozen table that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

"""Base of the tables of robot, mapping and bus configuration files."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


class Table(BaseModel):
    """A table of a TOML file; unknown keys, NaN, infinity and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)

    @model_validator(mode="after")
    def _one_unit_each(self) -> Self:
        for name in type(self).model_fields:
            if name.endswith("_deg") and getattr(self, name) is not None:
                radians = name.removesuffix("_deg")
                if getattr(self, radians) is not None:
                    raise ValueError(f"{radians} and {name} are both given; keep one")
        return self

"""Bases of the tables of files and of requests, and numbers in them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class StrictTable(BaseModel):
    """A frozen table; unknown keys, NaN, infinity and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Table(StrictTable):
    """A table of a robot, mapping or bus configuration file: `x_deg` stands for `x`."""

    @model_validator(mode="after")
    def _one_unit_each(self) -> Self:
        for name in type(self).model_fields:
            if name.endswith("_deg") and getattr(self, name) is not None:
                radians = name.removesuffix("_deg")
                if getattr(self, radians) is not None:
                    raise ValueError(f"{radians} and {name} are both given; keep one")
        return self

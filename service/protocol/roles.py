"""Roles of clients, each of which includes the ones before it; imports nothing, for the command line needs it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Role: TypeAlias = Literal["read", "operate", "motion", "admin"]
#: Those that there are by HTTP.
HttpRole: TypeAlias = Literal["read", "operate", "motion"]
#: From the least to the most.
ROLES: tuple[Role, ...] = ("read", "operate", "motion", "admin")


def allows(role: Role, needed: Role) -> bool:
    """Tell whether a client with `role` may do what needs the role `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)

"""Roles of clients, each including those before it; imports nothing, because the command line needs it."""

from typing import Literal, TypeAlias

Role: TypeAlias = Literal["read", "operate", "motion", "admin"]
#: Roles available by HTTP.
HttpRole: TypeAlias = Literal["read", "operate", "motion"]
#: In ascending order.
ROLES: tuple[Role, ...] = ("read", "operate", "motion", "admin")


def allows(role: Role, needed: Role) -> bool:
    """Return whether `role` includes the role `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)

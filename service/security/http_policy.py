"""What may be asked for by HTTP: by the role of who asks, and never more than the configuration grants.

The web process asks this to refuse early, the supervisor to refuse for certain: whatever the web process sends, it gets
no verb and no kind of job that is not listed here, and nothing above `daemon.http_role`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from service.protocol.control import STOPPING, VERBS, ControlError
from service.protocol.roles import ROLES, HttpRole, allows


class HttpAccess(Protocol):
    """What the configuration grants those who ask by HTTP; `service.config.daemon.DaemonConfig` has it."""

    @property
    def http_role(self) -> HttpRole:
        """The highest role that may be used."""

    @property
    def keyed(self) -> bool:
        """Whether clients need keys."""


#: All verbs that are passed on for those who ask by HTTP.  None of them starts a motion.
BY_HTTP = frozenset(
    (
        "abort", "disarm", "disable", "arm", "record", "submit", "reidentify", "cancel", "retry", "rollback", "jobs",
        "job", "events", "models", "prior",
    )
)  # fmt: skip
#: All kinds of jobs that may be submitted so.  Their recording is a file, which `jobs.folders` is to bound.
KINDS = frozenset(("identify", "validate", "promote"))


def check_by_http(verb: str, role: str, daemon: HttpAccess) -> None:
    """Raise `ControlError` of type "denied" unless who has `role` by HTTP may ask for `verb`.

    Where nobody needs a key, whoever is on this computer may stop an arm: it could by the control socket, too.
    """
    if verb not in BY_HTTP:
        raise ControlError("denied", f"{verb[:80]}: is not to be had by HTTP")
    if verb in STOPPING and not daemon.keyed:
        return
    needed = VERBS[verb].role
    if role not in ROLES or not allows(role, needed):
        raise ControlError("denied", f"{verb}: needs the role {needed}, and you have {role[:20] or 'none'}")
    if not allows(daemon.http_role, needed):
        raise ControlError("denied", f"{verb}: needs the role {needed}, and daemon.http_role is {daemon.http_role}")


def check_submitted(args: Mapping[str, object]) -> None:
    """Raise `ControlError` of type "denied" unless a job of this kind may be submitted by HTTP."""
    kind = str(args.get("kind"))
    if kind not in KINDS:
        raise ControlError("denied", f"submit: jobs of kind {kind[:80]!r} are not to be had by HTTP")


def allowed_by_http(role: str, daemon: HttpAccess) -> list[str]:
    """Return the verbs that who has `role` may ask for, sorted."""
    found = []
    for verb in sorted(BY_HTTP):
        try:
            check_by_http(verb, role, daemon)
        except ControlError:
            continue
        found.append(verb)
    return found

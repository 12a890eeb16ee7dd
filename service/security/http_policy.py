"""Policy of requests by HTTP: limited by the client's role and by the configuration.

The web process applies it to refuse early, the supervisor to refuse reliably: by HTTP there are no other verbs and
kinds of jobs than those listed here, and nothing above `daemon.http_role`.
"""

from collections.abc import Mapping
from typing import Protocol

from service.protocol.control import STOPPING, VERBS, ControlError
from service.protocol.roles import ROLES, HttpRole, allows


class HttpAccess(Protocol):
    """Configuration of HTTP clients' rights, as in `service.config.daemon.DaemonConfig`."""

    @property
    def http_role(self) -> HttpRole:
        """The highest role by HTTP."""

    @property
    def keyed(self) -> bool:
        """Whether clients need keys."""


#: Verbs available by HTTP.  None of them starts a motion.
HTTP_VERBS = frozenset(
    (
        "abort", "disarm", "disable", "arm", "record", "submit", "reidentify", "cancel", "retry", "rollback", "jobs",
        "job", "events", "models", "prior",
    )
)  # fmt: skip
#: Kinds of jobs available by HTTP.  Their recording is a file, which `jobs.folders` should restrict.
HTTP_JOB_KINDS = frozenset(("identify", "validate", "promote"))


def check_http(verb: str, role: str, daemon: HttpAccess) -> None:
    """Raise `ControlError` of type "denied" unless `role` may use `verb` by HTTP.

    Without keys anybody on this computer may stop an arm, as by the control socket.
    """
    if verb not in HTTP_VERBS:
        raise ControlError("denied", f"{verb[:80]}: is not available over HTTP")
    if verb in STOPPING and not daemon.keyed:
        return
    needed = VERBS[verb].role
    if role not in ROLES or not allows(role, needed):
        raise ControlError("denied", f"{verb}: needs the role {needed}, and you have {role[:20] or 'none'}")
    if not allows(daemon.http_role, needed):
        raise ControlError("denied", f"{verb}: needs the role {needed}, and daemon.http_role is {daemon.http_role}")


def check_http_job(args: Mapping[str, object]) -> None:
    """Raise `ControlError` of type "denied" unless this kind of job may be submitted by HTTP."""
    kind = str(args.get("kind"))
    if kind not in HTTP_JOB_KINDS:
        raise ControlError("denied", f"submit: jobs of kind {kind[:80]!r} are not available over HTTP")


def allowed_verbs(role: str, daemon: HttpAccess) -> list[str]:
    """Return the verbs available to `role`, sorted."""
    found = []
    for verb in sorted(HTTP_VERBS):
        try:
            check_http(verb, role, daemon)
        except ControlError:
            continue
        found.append(verb)
    return found

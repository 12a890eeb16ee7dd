"""Classify errors: as transient (a retry may help) or permanent, and as the project's own or others'."""

import errno

#: Errors of the operating system that may disappear.
_TRANSIENT = frozenset(
    (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY)
)
_OWN = tuple(
    f"{__name__.rpartition('service.')[0]}{package}." for package in ("rt_core", "drivers", "sim_backend", "service")
)


def is_own(error: BaseException) -> bool:
    """Return whether an error's class is the project's own, so that its message is written for users."""
    return type(error).__module__.startswith(_OWN)


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may help: something was missing or in use, or the computer was short of a resource.

    An error raised `from` a transient one is transient, too.
    """
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "again", False) or (isinstance(cause, OSError) and cause.errno in _TRANSIENT):
            return True
        cause = cause.__cause__
    return False

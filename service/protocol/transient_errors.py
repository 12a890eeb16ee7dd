"""Which errors pass by themselves: whoever is started again later may not meet them."""

from __future__ import annotations

import errno

#: What the operating system refuses at one moment and grants at another.
_PASSING = frozenset(
    (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY)
)


def may_pass(error: BaseException) -> bool:
    """Whether something was not there or in use, or the disk or the computer was not able to at the moment.

    An error that is made of another, and says so with `from`, passes with it.
    """
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "again", False) or (isinstance(cause, OSError) and cause.errno in _PASSING):
            return True
        cause = cause.__cause__
    return False

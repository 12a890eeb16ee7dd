"""Errors of operations; light, for processes that load nothing else."""


class OperationError(ValueError):
    """An operation that cannot be done as requested; a retry would not help."""


class OperationCancelledError(Exception):
    """The operation was cancelled."""

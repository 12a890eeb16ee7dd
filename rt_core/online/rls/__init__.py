"""Recursive least squares of the online estimator, in square-root information form.

Start with `square_root`, the kernels on an upper triangle: Householder update, back substitution, added variance.
`update` is one update of the estimate from a finished row per joint, with variable forgetting; `noise` learns the noise
levels of rigid and of elastic joints.  `residual_sums` sums the residual of the active model over the same rows,
`information_floor` limits what forgetting removes, and `information_matrix` converts between a covariance and a root of
its inverse.
"""

__all__ = ["information_floor", "information_matrix", "noise", "residual_sums", "square_root", "update"]

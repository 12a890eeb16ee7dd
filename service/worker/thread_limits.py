"""Limit of the threads of libraries; without imports, for every command needs it at its start."""

#: Environment in which BLAS and numba use one thread.  Several threads on small matrices only wait for one another, and
#: sums whose order depends on threads are not reproducible.
SINGLE_THREADED = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}

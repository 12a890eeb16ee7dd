"""Bounded minimisation by swarms, a genetic algorithm, Levenberg-Marquardt and their combination.

Start with `registry.optimise`, which runs an optimiser by name.  It takes a `problem` (a cost over a box, evaluated for
many points at once) and `settings` (how to search, and the budget; those of the papers are there, too).

`run` holds the state of a search: its evaluations, its best point, its history and its end.  The optimisers themselves
are internal modules, one a method.
"""

__all__ = ["problem", "registry", "run", "settings"]

"""Physically consistent parameters: fits and completions in which every link can be a real body.

Start with `fit.fit_consistent`, a fit to data, or with `recovery.complete_parameters`, which completes given base
parameters.  Both draw the parameters towards the body of each link that `prior` gives, with a weight that is given or
comes from the evidence of the data.

`coordinates` keeps a point inside the set of possible bodies, and `newton` minimises there.
"""

__all__ = [
    "coordinates", "fit", "newton", "prior", "recovery",
]  # fmt: skip

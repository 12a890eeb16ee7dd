"""Torque fit with the velocity constants of friction, such as Stribeck's `vb`.

Start with `fit.fit_torque`.  All torques are linear in everything but these constants, so `compressed` reduces the data
once for all values of the constants; after that no cost depends on the number of samples.  `search` minimises it over
all parameters at once (`full`) or over the constants with the rest eliminated (`separable`, variable projection), and
`profile` gives the interval of each constant.
"""

__all__ = [
    "compressed", "fit", "full", "profile", "search", "separable",
]  # fmt: skip

"""Design of exciting trajectories: motions within all limits that determine the base parameters well.

Start with `design`: `design_excitation` searches for the coefficients of a `fourier` series.  `settings` says what is
wanted; `objective` measures how well a motion determines the parameters; `constraints` checks it against the joint
`limits`, the `workspace_regions` and clearances of `shapes`, and `unchecked` lists what it cannot check.  A candidate
is evaluated by `fused`, swarms search with its values (`rt_core.optimise`), and `gradient` with its derivatives;
`search` is the record of a search.

- `harmonics` chooses the number of harmonics, `sequential` adds to earlier data, `validation` designs a second motion.
- `pulses` adds steps to a series, `urdf_capsules` covers the collision shapes of a URDF.
"""

__all__ = [
    "constraints", "design", "errors", "fourier", "fused", "gradient", "harmonics", "limits", "objective", "pulses",
    "search", "sequential", "settings", "shapes", "unchecked", "urdf_capsules", "validation", "workspace_regions",
]  # fmt: skip

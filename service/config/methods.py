"""Names of all methods, for code that must not import the numerics: the parser and the job queue."""

from __future__ import annotations

from typing import Literal, get_args

Linear = Literal["ols", "wls", "iwls", "tls", "iv", "physical"]
Search = Literal["pso", "pso_linear", "tcs_pso", "ga", "lm", "pso_lm"]
#: Methods of identification; as `rt_core.identification.estimate.Method`.
Method = Literal[Linear, Search]
SEARCHES: tuple[str, ...] = get_args(Search)
METHODS: tuple[str, ...] = get_args(Method)

#: Online methods, which process the training motion frame by frame.
ONLINE = ("vff_rls", "rls")
#: Networks; they need the extra `comparators`.
NETWORKS = ("bp_nn", "kan")
#: Searches that also run over all parameters at once, as in the papers: `full:NAME`.
FULL = tuple(f"full:{name}" for name in SEARCHES)
#: Methods that can be compared, and the default choice.
COMPARABLE: tuple[str, ...] = (*METHODS, *FULL, *ONLINE, *NETWORKS)
COMPARED = ("ols", "wls", "iwls", "pso_lm", "physical", "full:lm", "full:pso_linear", "full:pso_lm", "vff_rls")

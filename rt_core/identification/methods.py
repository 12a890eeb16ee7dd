"""Names of all methods, without the numerics: for settings, the parser and the job queue."""

from typing import Literal, get_args

from rt_core.optimise.settings import Name

Linear = Literal["ols", "wls", "iwls", "tls", "iv", "physical"]
#: Methods of identification; those of a `Name` search for the velocity constants of friction, or for all parameters.
Method = Literal[Linear, Name]
LINEAR: tuple[Linear, ...] = get_args(Linear)
#: Linear methods that need nothing but the rows, with the module beside this one that has `fit_rows(rows, loss)`.
ON_ROWS: dict[str, str] = {"iwls": "robust"}
SEARCHES: tuple[Name, ...] = get_args(Name)
METHODS: tuple[Method, ...] = get_args(Method)
#: What a search runs over, and whether velocity constants are searched for or taken from the model.
Formulation = Literal["separable", "full"]
Constants = Literal["search", "given"]

#: Online methods, which process the training motion frame by frame.
ONLINE = ("vff_rls", "rls")
#: Networks; they need the extra `comparators`.
NETWORKS = ("bp_nn", "kan")
#: Searches that also run over all parameters at once, as in the papers: `full:NAME`.
FULL = tuple(f"full:{name}" for name in SEARCHES)
#: Methods that can be compared, and the default choice.
COMPARABLE: tuple[str, ...] = (*METHODS, *FULL, *ONLINE, *NETWORKS)
COMPARED = ("ols", "wls", "iwls", "pso_lm", "physical", "full:lm", "full:pso_linear", "full:pso_lm", "vff_rls")

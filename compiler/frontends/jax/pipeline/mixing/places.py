"""Finds the source line and the flax or haiku module of an equation, for messages about losses that mix examples.
`semantics.py` calls it.
"""

from pathways.compiler.frontends.jax import compat
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Site
from pathways.dialect.diagnostics import Where


def line_of(site: Site) -> Where | None:
    """Returns the user's line.

    Lines inside of JAX's own jits are those of their first call, so the line of the user's call is used.
    """
    chain = [call for call, _ in site.calls]
    foreign = next((i for i, (_, is_of_jax) in enumerate(site.calls) if is_of_jax), len(chain))
    equations = [*chain, site.eqn][: foreign + 1]
    return next((where for eqn in reversed(equations) if (where := compat.where_of_equation(eqn)) is not None), None)


def module_of(site: Site) -> str:
    """Returns the modules around an equation, as flax, haiku and `jax.named_scope` name them: `Model/BatchNorm_0`."""
    scopes = [compat.scope_of_equation(eqn) for eqn in (*(call for call, _ in site.calls), site.eqn)]
    return "/".join(scope for scope in scopes if scope)

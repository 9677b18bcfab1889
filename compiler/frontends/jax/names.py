"""Finds the name under which a jit or a `shard_map` appears in plans and messages: the name of the user's function.
`flatten.py` calls it.
"""

from pathways.compiler.frontends.jax.compat import Eqn, body_of, func_source, where_of_equation


def call_name(eqn: Eqn) -> str:
    """Returns the name of a jit or of a shard_map's function.

    `pmap` hides the name as `_fun`. Then the function that contains the inner lines gives the name. Without such a line
    the name is `shard_map`.
    """
    if "jaxpr" not in eqn.params:  # cond, while
        return eqn.primitive.name
    name: str = eqn.params.get("name") or func_source(eqn.params["jaxpr"]).partition(" at ")[0]
    if name not in ("_fun", ""):
        return name
    body = body_of(eqn.params["jaxpr"])
    for inner in body.eqns:
        if inner.primitive.name == "shard_map":
            return call_name(inner)
        where = where_of_equation(inner)
        if where is not None and where.function:
            return where.function
    return "shard_map"

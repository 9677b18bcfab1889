"""Handles random operations for the analysis of losses over microbatches. A key that all examples share draws numbers
for the whole batch; a key of one example draws for that example. `rules.py` registers its functions.
"""

from pathways.compiler.frontends.jax.pipeline.mixing.equation_pair import EquationPair, Made, Rule
from pathways.compiler.frontends.jax.pipeline.mixing.relation import Form, MixingCause, Relation, Why, is_close

_MAKE_KEYS = ("random_wrap", "random_unwrap", "random_clone", "random_seed")
"""Operations that draw no numbers."""


def _random(step: EquationPair) -> Made:
    keys = step.ins
    if all(r.form is Form.CONST for r in keys):
        grows = any(a != b for a, b in step.outs)
        causes = {step.cause(Why.NOISE)} if grows and step.name not in _MAKE_KEYS else set[MixingCause]()
        return Relation(causes=frozenset(causes | _of_sizes(step)))
    if any(r.is_statistic for r in keys):
        return step.lost(Why.BACK, "a random key is computed from a statistic of the batch")
    rows = step.rows[0]
    if any(r.layout != rows.layout for r in step.rows):
        return step.lost(Why.PAIRS, "random keys of different examples are combined")
    return Relation(Form.ROWS, rows.layout, causes=frozenset(_of_sizes(step)), has_data=True)


def _of_sizes(step: EquationPair) -> set[MixingCause]:
    """Returns the causes for keys made of a number that depends on the batch size or differs from row to row."""
    constants = [r for r in step.ins if r.form is Form.CONST]
    if all(is_close(r.factor, 1) for r in constants):
        return set()
    is_even = all(r.known is not None or r.is_even for r in constants)
    return {step.cause(Why.SIZE) if is_even else step.misplaced()}


RULES: dict[str, Rule] = dict.fromkeys(
    (
        *("random_bits", "random_split", "random_fold_in", "random_seed", "random_wrap", "random_unwrap"),
        *("random_clone", "random_gamma", "threefry2x32", "threefry4x32", "philox2x32", "philox4x32"),
        *("rng_bit_generator", "rng_uniform"),
    ),
    _random,
)

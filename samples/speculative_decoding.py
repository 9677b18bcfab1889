# pyright: basic
"""Speculative decoding: a small model on one slice proposes tokens, and a large model on another slice checks them.

    python samples/speculative_decoding.py

The number of accepted proposals, and so the number of rounds, depends on data: the program is a `lax.while_loop` around
placed calls. The result equals the tokens that the large model alone would choose, one after another.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw

VOCABULARY, WIDTH, LENGTH, AHEAD = 64, 32, 48, 4
SPACE = LENGTH + AHEAD
"""The length of the token buffer: the last proposals may extend beyond `LENGTH`."""


def scores(weights, tokens):
    """Computes the score of each possible next token at each position: (position, token)."""
    x = weights["embed"][tokens]
    context = jnp.cumsum(x, 0) / jnp.arange(1, len(tokens) + 1)[:, None]
    return jnp.tanh(x + context @ weights["mix"]) @ weights["head"]


def propose(weights, tokens, count):
    """Appends `AHEAD` tokens, chosen by the small model, after the first `count`."""

    def one(tokens, i):
        following = scores(weights, tokens)[count + i - 1].argmax().astype(tokens.dtype)
        return tokens.at[count + i].set(following), None

    return lax.scan(one, tokens, jnp.arange(AHEAD))[0]


def accept(weights, tokens, count):
    """Keeps proposals up to the first that the large model would not choose, and adds one token of its own."""
    chosen = scores(weights, tokens).argmax(-1).astype(tokens.dtype)
    places = count + jnp.arange(AHEAD)
    agreed = jnp.cumprod(tokens[places] == chosen[places - 1]).sum()
    end = jnp.minimum(count + agreed, SPACE - 1)
    return tokens.at[end].set(chosen[end - 1]), end + 1


def make_generate(propose, accept):
    def generate(small, large, prompt):
        def unfinished(state):
            return state[1] < LENGTH

        def once(state):
            tokens, count, rounds = state
            tokens, count = accept(large, propose(small, tokens, count), count)
            return tokens, count, rounds + 1

        tokens = jnp.zeros(SPACE, prompt.dtype).at[: len(prompt)].set(prompt)
        tokens, _, rounds = lax.while_loop(unfinished, once, (tokens, len(prompt), 0))
        return tokens[:LENGTH], rounds

    return generate


def make_weights():
    """Makes a large model, and a small model that approximates it (here: the same weights, rounded)."""
    rng = np.random.default_rng(0)
    shapes = {"embed": (VOCABULARY, WIDTH), "mix": (WIDTH, WIDTH), "head": (WIDTH, VOCABULARY)}
    large = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: np.round(4 * w) / 4 for name, w in large.items()}, large


def one_after_another(large, prompt):
    """Generates tokens with the large model alone."""
    tokens = np.zeros(LENGTH, np.int32)
    tokens[: len(prompt)] = prompt
    for count in range(len(prompt), LENGTH):
        tokens[count] = scores(large, jnp.asarray(tokens))[count - 1].argmax()
    return tokens


def placed():
    """Places the small model on one device, and the large one on two, with its vocabulary split."""
    devices = pw.make_virtual_device_set()
    one, two = devices.add_slice(tpu_devices=1).mesh("model"), devices.add_slice(tpu_devices=2).mesh("model")
    split = {"embed": P(), "mix": P(), "head": P(None, "model")}
    large = {name: NamedSharding(two, spec) for name, spec in split.items()}
    return make_generate(
        jax.jit(propose, in_shardings=NamedSharding(one, P())),
        jax.jit(accept, in_shardings=(large, NamedSharding(two, P()), NamedSharding(two, P()))),
    )


small, large = make_weights()
prompt = np.array([1, 2, 3], np.int32)
generate = pw.program(placed(), example_args=(small, large, prompt))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    tokens, rounds = generate(small, large, prompt)
    print(np.asarray(tokens))
    made = LENGTH - len(prompt)
    print(f"{made} tokens in {int(rounds)} rounds of the large model, {made / int(rounds):.2f} a round")
    same = np.array_equal(tokens, one_after_another(large, prompt))
    print(f"the same as one after another: {same}")


if __name__ == "__main__":
    main()

"""The training step that the guides assume: two stages, as `train_step` and as the file `model.py`.

A hidden block of a page imports names from this module. The import writes `model.py` into the folder of the page.
"""

from pathlib import Path

import jax
import numpy as np

from support.processes import load_file

MODEL = """
import jax
import jax.numpy as jnp
import numpy as np

import pathways as pw

devices = pw.make_virtual_device_set()
slices = [devices.add_slice(devices=1) for _ in range(2)]
batch = np.ones((8, 16), np.float32)


def init(key):
    return [jax.random.normal(k, (16, 16)) / 4 for k in jax.random.split(key, 4)]


def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


staged = pw.pipeline(loss, slices, microbatches=4)
example_args = (jax.eval_shape(init, jax.random.key(0)), batch)


@pw.program(example_args=example_args)
def train_step(params, x):
    value, gradients = jax.value_and_grad(staged)(params, x)
    return [w - 0.1 * g for w, g in zip(params, gradients)], value


step = train_step
"""

Path("model.py").write_text(MODEL.strip() + "\n")
model = load_file(Path("model.py").resolve())
train_step, loss, slices, devices, batch = model.train_step, model.loss, model.slices, model.devices, model.batch
params = [np.asarray(w) for w in model.init(jax.random.key(0))]

# pyright: basic
"""Figure 2 of the Pathways paper: three computations on three slices, one program."""

import jax
import numpy as np

import pathways as pw


def get_devices(n):
    return pw.make_virtual_device_set().add_slice(tpu_devices=n).tpus


a = jax.pmap(lambda x: x * 2.0, devices=get_devices(2))
b = jax.pmap(lambda x: x + 1.0, devices=get_devices(2))
c = jax.pmap(lambda x: x / 2.0, devices=get_devices(2))
v = np.array([1.0, 2.0])


@pw.program(example_args=(v,))
def f(v):
    x = a(v)
    y = b(x)
    z = a(c(x))
    return y, z


if __name__ == "__main__":
    print(*f(v))

# pyright: basic
"""Runs a program of Shardy's MPMD compiler here, against the same module done op by op through `jax.jit`, in one run.

    python bench/mpmd.py                    # 4 stages, 16 microbatches, tiny: what dispatch costs
    python bench/mpmd.py --width 256        # where computing decides
    python bench/mpmd.py --read             # only how long reading takes: 8 stages, 64 microbatches, 1,024 fragments

The baselines run the partitioned module in its order: a function under `jax.jit` for each fragment's callee, and
`jax.device_put` for each transfer. One walks the module in every step, as an interpreter does. The other has read it
into a list of functions and slots beforehand. Ours runs the same module (Shardy's order), and the module that Shardy
has only imported, under this compiler's own 1F1B. All ways take arrays on the devices that use them, and end when all
results are there.
"""

import argparse
import dataclasses
import time
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from in_turns import medians
from shardy_mpmd import named, partition

import pathways as pw
from pathways.compiler.frontends.mpmd.fragments import Computations, call_signature
from pathways.compiler.frontends.mpmd.types import read_mesh_tensor
from pathways.dialect.mlir import bytecode, ir, make_context, parse, portable
from pathways.dialect.shardy_mpmd import register

parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
parser.add_argument("--stages", type=int, default=4)
parser.add_argument("--microbatches", type=int, default=16)
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("--read", action="store_true")
options = parser.parse_args()
if options.read:
    options.stages, options.microbatches = 8, 64
jax.config.update("jax_num_cpu_devices", options.stages)


def run_stage(params, x):
    return jax.nn.gelu(x @ params["up"]) @ params["down"]


def inputs():
    rng = np.random.default_rng(0)
    width = options.width
    shapes = {"up": (width, 2 * width), "down": (2 * width, width)}
    params = [
        {k: 0.3 * rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()} for _ in range(options.stages)
    ]
    return params, rng.standard_normal((options.microbatches, width, width)).astype(np.float32)


class Interpreter:
    """A partitioned module that runs op by op: a list of jitted functions and moves, and slots for values."""

    def __init__(self, text):
        context = make_context()
        register(context)
        self.module = module = parse(text, context)
        with context, ir.Location.unknown():
            (main,) = [f for f in module.body.operations if "topology" in f.operation.attributes]
            self.block = block = main.regions[0].blocks[0]
            made = Computations(module, module, None)
            self.slots = {value: i for i, value in enumerate(block.arguments)}
            self.homes = [int(read_mesh_tensor(v.type).mesh[1:]) for v in block.arguments]
            self.work = []
            self.functions = functions = {}
            *operations, end = block.operations
            for op in operations:
                operands = [self.slots[v] for v in op.operation.operands]
                for value in op.operation.results:
                    self.slots[value] = len(self.slots)
                outs = [self.slots[v] for v in op.operation.results]
                if op.operation.name == "mpmd.transfer":
                    home = int(read_mesh_tensor(op.operation.results[0].type).mesh[1:])
                    self.work.append((None, home, operands, outs))
                    continue
                callee = op.operation.attributes["callee"].value
                if callee not in functions:
                    ins = tuple(read_mesh_tensor(v.type) for v in op.operation.operands)
                    types = tuple(read_mesh_tensor(v.type) for v in op.operation.results)
                    signature = call_signature((("x", 1),), ins, types, True)
                    functions[callee] = jitted(made.of_callee(callee, "f", signature).source, ins, types)
                self.work.append((functions[callee], None, operands, outs))
            self.returned = [self.slots[v] for v in end.operands]

    def __call__(self, arguments):
        values: list[Any] = [*arguments, *[None] * (len(self.slots) - len(arguments))]
        devices = jax.devices()
        for function, home, operands, outs in self.work:
            if function is None:
                values[outs[0]] = jax.device_put(values[operands[0]], devices[home])
            else:
                for slot, value in zip(outs, function(*[values[i] for i in operands]), strict=True):
                    values[slot] = value
        return [values[i] for i in self.returned]

    def walk(self, arguments):
        """Does the same, but reads the module in every step."""
        with self.module.context:
            return self._walk(arguments)

    def _walk(self, arguments):
        env = dict(zip(self.block.arguments, arguments, strict=True))
        devices = jax.devices()
        for op in self.block.operations:
            operation = op.operation
            operands = [env[v] for v in operation.operands]
            if operation.name == "func.return":
                return operands
            if operation.name == "mpmd.transfer":
                (result,) = operation.results
                home = int(read_mesh_tensor(result.type).mesh[1:])
                env[result] = jax.device_put(operands[0], devices[home])
            else:
                made = self.functions[operation.attributes["callee"].value](*operands)
                env.update(zip(operation.results, made, strict=True))
        raise AssertionError("a module without an end")


def jitted(source, ins, outs):
    """Returns the function of a module under `jax.jit`, by replacing the module of an exported function."""
    structs = [[jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for v in side] for side in (ins, outs)]
    like = jax.export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(s.shape, s.dtype) for s in structs[1]), keep_unused=True)
    )(*structs[0])
    module = parse(source, make_context())
    for name in ("mhlo.num_partitions", "mhlo.num_replicas"):
        if name in module.operation.attributes:
            del module.operation.attributes[name]
    replaced = dataclasses.replace(like, mlir_module_serialized=portable(bytecode(module.operation)))
    return jax.jit(replaced.call)


def read():
    params, xs = inputs()
    text = bytecode(partition(named(run_stage, params, xs), params, "IMPORT").operation)
    took = []
    for _ in range(3):
        start = time.perf_counter()
        lowered = pw.from_mpmd(text)
        took.append(time.perf_counter() - start)
    count = str(lowered.module).count("pw.call")
    what = f"{options.stages} stages, {options.microbatches} microbatches"
    print(f"reading {count} calls of {what}: {min(took):.2f} s (bar 3)")


def compare():
    params, xs = inputs()
    partitioned = bytecode(partition(named(run_stage, params, xs), params, "ALL").operation)
    imported = bytecode(partition(named(run_stage, params, xs), params, "IMPORT").operation)
    interpreter = Interpreter(partitioned)
    flat = [*jax.tree.leaves(params), xs]
    placed = [jax.device_put(x, jax.devices()[home]) for x, home in zip(flat, interpreter.homes, strict=True)]
    ours = {
        "Shardy's order": pw.from_mpmd(partitioned).compile(),
        "1f1b of ours": pw.from_mpmd(imported).compile(schedule="1f1b"),
    }
    want = [np.asarray(x) for x in interpreter(placed)]
    ways = {
        "jax.jit, walking": lambda: jax.block_until_ready(interpreter.walk(placed)),
        "jax.jit, a list": lambda: jax.block_until_ready(interpreter(placed)),
    }
    for name, compiled in ours.items():
        found = compiled(*flat)
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)
        held = [*found[: len(flat) - 1], xs]  # its own output weights, which are on the devices that take them
        ways[name] = lambda compiled=compiled, held=held: [x.block_until_ready() for x in compiled(*held)]
    calls = sum(function is not None for function, *_ in interpreter.work)
    found = medians(ways, options.rounds)
    print(f"{options.stages} stages, {options.microbatches} microbatches, width {options.width}: {calls} fragments")
    walking, listed = (found[name] for name in list(found)[:2])
    for name, seconds in found.items():
        said = f"   {walking / seconds:.2f}x as fast as walking, {listed / seconds:.2f}x as the list" * (name in ours)
        print(f"  {name:28} {seconds * 1e3:8.2f} ms a step{said}")
    print("bar where dispatch decides: 1.7")


if __name__ == "__main__":
    read() if options.read else compare()

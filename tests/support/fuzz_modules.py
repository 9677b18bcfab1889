"""Creates plans whose modules do not match their metadata: a small valid plan, and functions to replace its modules.

To run many mutants by hand: `python tests/support/fuzz_modules.py --seed 7 --count 10000`.
"""

import argparse
import json
import os
import random
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import pathways as pw
from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.mlir import bytecode, from_portable, make_context, parse, portable, pretty
from pathways.dialect.plan.modules.vet import vetted
from pathways.dialect.plan.nouns import Computation, Plan
from pathways.dialect.plan.plan_file import read_plan, write_plan
from support.processes import run_python

jit: Any = jax.jit
X = np.arange(64, dtype=np.float32).reshape(8, 8)

TYPE = "tensor<8x8xf32>"
ONE = f"""module @alone attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main(%a: {TYPE} {{jax.buffer_donor = true}}, %k: tensor<8xf32>) -> ({TYPE}, tensor<f32>) {{
    BODY
    %s = stablehlo.constant dense<1.0> : tensor<f32>
    return %r, %s : {TYPE}, tensor<f32>
  }}
  REST
}}"""


@cache
def honest() -> Plan:
    """Returns a valid plan: `gang` on four devices with collectives, and `alone` on one, which donates its argument."""
    made = pw.make_virtual_device_set()
    many, one = made.add_slice(devices=4).mesh("x"), made.add_slice(devices=1).mesh("z")
    rows = NamedSharding(many, P("x"))

    def gang(a: Any, b: Any) -> Any:
        return a + b @ b.sum(0)

    def alone(a: Any, k: Any) -> Any:
        return jnp.where(a > 3, a, jnp.tanh(a)), k.sum()

    first = jit(gang, in_shardings=(rows, rows), out_shardings=rows)
    second = jit(alone, in_shardings=NamedSharding(one, P()))
    program = pw.program(lambda a, b, k: second(first(a, b), k))
    return read_plan(write_plan(program.lower(X, X, X[0]).compile().plan))


def named(plan: Plan, name: str) -> int:
    return next(i for i, c in enumerate(plan.computations) if c.name.startswith(name))


def with_module(plan: Plan, index: int, module: bytes) -> Plan:
    """Replaces the module of a computation, and removes its one-device module."""
    changed: list[Computation] = list(plan.computations)
    changed[index] = replace(changed[index], module=module, local=b"")
    return replace(plan, computations=tuple(changed))


def text_of(raw: bytes) -> str:
    return pretty(from_portable(raw))


def module_of(source: str) -> bytes:
    return portable(bytecode(parse(source, make_context()).operation))


def mutant(raw: bytes, rng: random.Random) -> bytes:
    """Applies one to four changes to a module: changes a byte or bit, or deletes, repeats or copies some bytes."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, length = rng.randrange(4, len(data)), rng.choice((1, 1, 2, 4, 16))
        match rng.randrange(6):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = data[at : at + length]
            case _:
                data[at : at + length] = data[(here := rng.randrange(4, len(data))) : here + length]
    return bytes(data)


def mutants(seed: int, count: int) -> list[bytes]:
    """Returns archives of plans, each with one mutated module."""
    rng, plan = random.Random(seed), honest()
    made: list[bytes] = []
    for _ in range(count):
        index = rng.randrange(len(plan.computations))
        made.append(write_plan(with_module(plan, index, mutant(plan.computations[index].module, rng))))
    return made


def refusal(raw: bytes) -> str:
    """Returns the error code with which an untrusted plan is refused; '' if the plan is accepted."""
    try:
        vetted(read_plan(raw), "plan.bin")
    except PathwaysError as error:
        return error.code
    return ""


_RUN = """
import sys
import jax
import numpy as np
import pathways as pw
from pathways.runtime.host.devices.pjrt import FAILURES
for path in sys.argv[1:]:
    print("at", path, flush=True)
    try:
        compiled = pw.load(path)
        arguments = [np.ones(p.type.shape, p.type.dtype) for p in compiled.plan.inputs]
        for result in jax.tree.leaves(compiled(*arguments)):
            np.asarray(result)
    except (pw.PathwaysError, *FAILURES) as error:
        print(type(error).__name__, str(error).splitlines()[0][:160], flush=True)
print("done", flush=True)
"""


def alone(body: str, rest: str = "") -> Plan:
    """Returns the valid plan, with this body in its one-device computation `alone`."""
    source = ONE.replace("BODY", body).replace("REST", rest)
    return with_module(honest(), named(honest(), "alone"), module_of(source))


def custom(target: str) -> Plan:
    """Returns the valid plan, with a custom call in `alone`."""
    return alone(f'%r = "stablehlo.custom_call"(%a) {{call_target_name = "{target}"}} : ({TYPE}) -> {TYPE}')


def run_all(paths: list[Path]) -> tuple[int, str]:
    """Loads and runs plans in one new process; returns its exit code and the end of its output."""
    done = run_python("-c", _RUN, *map(str, paths), JAX_PLATFORMS="cpu", PATHWAYS_HANG_TIMEOUT="20")
    return done.returncode, f"{done.stdout[-400:]}\n{done.stderr[-1500:]}"


def _by_hand() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path("mutants"))
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    passed: list[Path] = []
    codes: dict[str, int] = {}
    for number, raw in enumerate(mutants(asked.seed, asked.count)):
        code = refusal(raw)
        codes[code] = codes.get(code, 0) + 1
        if not code:
            passed.append(asked.folder / f"{asked.seed}-{number}.bin")
            passed[-1].write_bytes(raw)
    print(json.dumps(codes))
    for start in range(0, len(passed), 20):
        code, said = run_all(passed[start : start + 20])
        if code != 0:
            print(f"exit code {code}\n{said}")


if __name__ == "__main__":
    _by_hand()

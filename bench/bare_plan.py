# pyright: basic
"""Compiles and runs the plan of a program by bare PJRT: the same modules, launches and copies, and nothing around them.

`small_models.py` compares with it: a plan cannot be faster than its own launches. Islands have one device each.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from pathways.dialect.dtypes import numpy_dtype
from pathways.dialect.plan.instructions import Free, Recv, Run, Send
from pathways.dialect.plan.order import linearize
from pathways.runtime.host.devices import pjrt


class BarePlan:
    """Calls a plan with one array for each input; returns one for each result."""

    def __init__(self, plan, threads, *, devices=None, through_host=False):
        """Compiles each different module once, on this number of threads, and keeps the time in `compile_seconds`.

        `devices` are those of a plan with the same islands, by island. With `through_host`, values go from device to
        device through host memory, as small values do in loops.
        """
        self.plan, self.through_host = plan, through_host
        self.at = {stream.island: number for number, stream in enumerate(plan.streams)}
        names = [island.name for island in plan.topology.islands]
        self.by_island = devices or dict(zip(names, pjrt.make_devices(len(names)), strict=True))
        self.devices = [self.by_island[stream.island] for stream in plan.streams]
        modules = {c.module: None for c in plan.computations}
        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda m: pjrt.compile_module(m, self.devices[:1]), sorted(modules, key=len, reverse=True)))
        self.compile_seconds = time.perf_counter() - begin
        self.starts, self.sent = {}, {}
        self.constants = [(self.at[c.island], c.slot, self.constant(c)) for c in plan.constant_buffers]
        self.steps = [self.step(at, i) for at, i in linearize(plan)]

    def array(self, port, value):
        """Puts the value of an input on the device that reads it; None if none does."""
        return jax.device_put(value, self.devices[self.at[port.island]]) if port.slot >= 0 else None

    def constant(self, constant):
        type_ = self.plan.stream(constant.island).kind_of[constant.slot].type
        values = np.frombuffer(self.plan.constants[constant.member], numpy_dtype(type_.dtype)).reshape(type_.shape)
        return jax.device_put(values, self.devices[self.at[constant.island]])

    def step(self, at, instruction):
        match instruction:
            case Run():
                return self.launch(at, instruction)
            case Send():
                return self.send(at, instruction.slot, instruction.channel)
            case Recv():
                return self.receive(at, instruction.slot, instruction.channel)
            case Free():
                return self.free(at, instruction.slots)
        raise TypeError(f"bare PJRT has no {type(instruction).__name__}")

    def launch(self, at, run):
        key = run.computation, at
        if key not in self.starts:
            computation, device = self.plan.computations[run.computation], self.devices[at]
            handlers = pjrt.result_handlers(computation.outputs, [pjrt.on_device(device)] * len(computation.outputs))
            self.starts[key] = pjrt.compile_module(computation.module, [device]).execute_sharded, handlers
        (execute, handlers), inputs, outputs = self.starts[key], run.inputs, run.outputs
        gone = [inputs[i] for i in run.donated]

        def work(values):
            here = values[at]
            made = execute([here[i] for i in inputs]).consume_with_handlers(handlers)
            for slot, array in zip(outputs, made, strict=True):
                here[slot] = array
            for slot in gone:
                here[slot] = None

        return work

    def send(self, at, slot, channel):
        def work(values):
            self.sent[channel] = values[at][slot]

        return work

    def receive(self, at, slot, channel):
        devices, sharding = [self.devices[at]], pjrt.on_device(self.devices[at])
        listed = pjrt.device_list(devices)
        type_ = self.plan.stream(self.plan.streams[at].island).kind_of[slot].type
        place = pjrt.placer(type_, sharding, devices, keeps=False)

        def work(values):
            values[at][slot] = pjrt.copy_whole(self.sent.pop(channel), listed, sharding)

        def work_through_host(values):
            values[at][slot] = place([np.asarray(self.sent.pop(channel))])

        return work_through_host if self.through_host else work

    def free(self, at, slots):
        def work(values):
            for slot in slots:
                values[at][slot] = None

        return work

    def __call__(self, arrays):
        values = [[None] * len(stream.buffers) for stream in self.plan.streams]
        for port, array in zip(self.plan.inputs, arrays, strict=True):
            if port.slot >= 0:
                values[self.at[port.island]][port.slot] = array
        for at, slot, array in self.constants:
            values[at][slot] = array
        for step in self.steps:
            step(values)
        return [values[self.at[port.island]][port.slot] for port in self.plan.results]

"""Tests where a compiled program shows what its loss is over microbatches: the IR, the plan, `pwc why`, and the page."""

from pathlib import Path
from typing import Any

import pytest
from support.losses import CASES
from support.losses.table import any_jax, examples, parameters

import pathways as pw
from pathways.api.stages import Compiled
from pathways.cli.why import render
from pathways.compiler.pass_manager import Options
from pathways.dialect.plan.nouns import Decision
from pathways.viz.pictures import picture_of_plan
from pathways.viz.render.page_data import page_data


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    p, b = parameters(), examples()
    devices = pw.make_virtual_device_set()
    loss = pw.pipeline(CASES["dropout"].loss, [devices.add_slice(devices=1)], microbatches=2)
    return pw.program(lambda p, b: any_jax.value_and_grad(loss)(p, b)).lower(p, b).compile()

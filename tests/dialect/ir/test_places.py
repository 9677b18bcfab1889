"""Two shardings are one place if each device holds the same shard, whatever the names of their axes."""

import pytest
from support.small_modules import BRANCHING, STRAIGHT

from pathways.dialect.dtypes import ArrayType
from pathways.dialect.ir.places import same_place
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import parse_text
from pathways.dialect.sdy import Placed

TYPE = ArrayType((8,), "float32")
SPLIT, RENAMED, WHOLE = Placed("m0", (("x",),)), Placed("m1", (("y",),)), Placed("m1", ((),))
REVERSED = 'axes = #sdy.mesh<["y"=2]>, devices = "1,0"'


@pytest.mark.parametrize(
    ("module", "target", "is_same"),
    [
        (BRANCHING.replace(REVERSED, REVERSED.replace("1,0", "0:2")), RENAMED, True),
        (BRANCHING.replace(REVERSED, REVERSED.replace("1,0", "0:2")), WHOLE, False),
        (BRANCHING, RENAMED, False),
        (BRANCHING, SPLIT, True),
        (STRAIGHT, RENAMED, False),
    ],
    ids=["other names", "whole", "devices in another order", "equal", "another island"],
)
def test_a_value_stays_where_its_shards_stay(module: str, target: Placed, is_same: bool) -> None:
    assert REVERSED in BRANCHING
    assert same_place(ProgramIR(parse_text(module, "small")), TYPE, SPLIT, target) is is_same

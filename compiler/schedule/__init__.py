"""Recognizes pipelines in programs, and orders their work by a schedule such as GPipe or 1F1B. Each schedule
has its own file. Compiler passes and `compiler/search` use this package.
"""

from collections.abc import Callable

from pathways.compiler.schedule.gpipe import gpipe
from pathways.compiler.schedule.interleaved import interleaved
from pathways.compiler.schedule.one_f_one_b import one_f_one_b
from pathways.compiler.schedule.table import Pipeline as Pipeline
from pathways.compiler.schedule.table import Table as Table
from pathways.compiler.schedule.zero_bubble import zero_bubble

PROGRAM = "program"
"""The schedule that leaves the order of the program as it is."""

ZERO_BUBBLE = "zero-bubble"
"""The only schedule that needs backward computations in two parts."""

SCHEDULES: dict[str, Callable[[Pipeline], Table]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    ZERO_BUBBLE: zero_bubble,
}
"""The schedules by name."""

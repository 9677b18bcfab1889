"""Builds the dataflow graphs of earlier compilation phases from the IR dumps in a plan file. `pwc viz` and
`Compiled.visualize` call it for plans that have dumps.
"""

from pathways.compiler.collector import collector_paused
from pathways.dialect.ir.program import ProgramIR
from pathways.dialect.mlir import make_context, parse
from pathways.dialect.phases import Phase
from pathways.dialect.plan.nouns import Plan
from pathways.viz.graphs import Graph, graph_of_program


def kept_graphs(plan: Plan) -> list[Graph]:
    """Returns the dataflow at the phases whose dumps a plan holds. `pwc compile --with-phases` stores them.

    Dumps that this user did not write are verified first, like any other dump.
    """
    names = {p.dump_name for p in Phase if p is not Phase.PLAN}
    dumps = [(name, raw.decode()) for name, raw in sorted(plan.phases.items()) if name in names]
    with collector_paused():
        if plan.marked:
            return [graph_of_program(ProgramIR(parse(dump, make_context(), name))) for name, dump in dumps]
        from pathways.compiler.driver import parse_program  # imports the whole compiler

        return [graph_of_program(parse_program(dump, name)) for name, dump in dumps]

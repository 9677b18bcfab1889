"""Generates the reference page of the `pw` dialect, docs/dialect.md, from the declarations of its ops. `make reference`
runs it.
"""

import inspect

from pathways.dialect.ir import arguments as attributes
from pathways.dialect.ir.pw import OPS

_HEAD = """# The pw dialect

Made by `make reference` from `dialect/ir/pw.py`; do not edit. One module holds a program in every phase: `trace`,
`shard`, `place`, `transfer`, `schedule`, `plan` (its attribute `pw.phase`). Each distinct computation is one nested
module of StableHLO with Shardy shardings. Attributes marked with `?` are optional; all others are required.
"""


def page() -> str:
    """Returns the page as Markdown."""
    parts = [_HEAD]
    for op in OPS:
        parts.append(f"## `{op.OPERATION_NAME}`\n\n{inspect.cleandoc(op.__doc__ or '')}\n")
        parts.append(f"Operands: {op.operands_}. Results: {op.results_}. Regions: {op.regions_}.\n")
        parts.append("| attribute | kind | meaning |\n|---|---|---|")
        parts += [
            f"| `{name}`{'' if field.required else ' ?'} | {field.kind.name} | {field.doc} |"
            for name, field in op.fields().items()
        ]
        parts.append("")
    arguments = inspect.cleandoc(attributes.__doc__ or "").partition("\n\n")[2]
    parts.append(f"## The program\n\n{arguments}")
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")

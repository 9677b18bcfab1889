"""Writes the generated pictures and tables of the pages: `make pictures`. A test fails if they are stale.

A page marks the place of a table with `<!-- made: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from generate.concept_pictures import controller, slices, transfer
from generate.diagrams import layers, phases, states_table
from generate.evaluation import evaluation
from generate.schedule_picture import schedules
from generate.states_picture import states_picture
from pathways.runtime.states import ALL, States

DOCS = Path(__file__).parents[1]
PICTURES = {
    "slices": slices,
    "transfer": transfer,
    "controller": controller,
    "schedules": schedules,
    "layers": layers,
    "phases": phases,
}
_MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.S)


def made() -> Mapping[Path, str]:
    """Returns the content of every file in `docs/` that is generated, or contains a generated table."""
    files = {DOCS / "pictures" / f"{name}.svg": draw() for name, draw in PICTURES.items()}
    files[DOCS / "evaluation.md"] = evaluation()
    files |= {DOCS / "pictures" / f"{_file_of(states)}.svg": states_picture(states) for states in ALL}
    tables = {"states": "\n\n".join(_section(states) for states in ALL)}
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        filled = _MADE.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)
        if "<!-- made: " in text:
            files[page] = filled
    return files


def _file_of(states: States) -> str:
    return f"states-of-{states.what.replace(' ', '-')}"


def _section(states: States) -> str:
    """Returns the picture of a table of states, and the table."""
    return f"![The states of {states.what}](pictures/{_file_of(states)}.svg)\n\n{states_table(states)}"


def main() -> None:
    for path, text in made().items():
        path.write_text(text)


if __name__ == "__main__":
    main()

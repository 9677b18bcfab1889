"""Opens a plan file and checks all of it. All commands of `pwc` and functions of the API that run, show or compare a
plan call it.
"""

from pathlib import Path

from pathways.dialect.activities import Activity
from pathways.dialect.plan.check import validate
from pathways.dialect.plan.check_modules import check_modules
from pathways.dialect.plan.nouns import Plan
from pathways.dialect.plan.plan_file import load_plan


def open_plan(path: str | Path) -> Plan:
    """Reads a plan.bin and checks all of it: the archive, then its structure, then its modules.

    Raises PWC0601-PWC0604 and PWC0613. Everything that the returned plan names exists.
    """
    with Activity(f"reading {Path(path).name}"):
        plan = load_plan(path)
        validate(plan, str(path))
        check_modules(plan, str(path))
    return plan

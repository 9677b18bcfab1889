"""Some hundreds of changed plans, of fixed seeds; fuzz_plans.py says how to try more."""

from pathlib import Path

from fuzz_plans import findings


def test_changed_plans_are_refused_or_do_what_they_say(tmp_path: Path) -> None:
    outcomes = dict(findings(tmp_path, 0, 300))
    assert not {n: o for n, o in outcomes.items() if o.startswith("FOUND")}
    kinds = [o.split()[0] for o in outcomes.values()]
    assert kinds.count("same") >= 50 and kinds.count("PWC0604") >= 50 and len(kinds) >= 250

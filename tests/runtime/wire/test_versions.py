"""The difference between the versions of two processes names each that differs."""

from pathways.runtime.wire.message import VERSIONS, difference


def test_equal_versions_have_no_difference() -> None:
    assert difference(dict(VERSIONS)) == ""


def test_all_versions_that_differ_are_listed_by_name() -> None:
    names = [f"package{letter}" for letter in "hagbfced"]
    wanted = ", ".join(f"{name} 1 (controller: none)" for name in sorted(names))
    assert difference(VERSIONS | dict.fromkeys(names, "1")) == wanted
    without = {name: version for name, version in VERSIONS.items() if name != "python"}
    assert difference(without) == f"python none (controller: {VERSIONS['python']})"

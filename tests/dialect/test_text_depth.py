"""The depth of MLIR text is found at its limits: brackets, aliases, and sums of affine maps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pathways.dialect.diagnostics import PathwaysError
from pathways.dialect.text_depth import (
    BRACKET_PAIRS,
    DEEPEST_TEXT,
    LARGEST_TEXT,
    MAX_GROWTH,
    MLIR_TOKEN,
    TextScan,
    check_nesting,
    is_flat_text,
)


def nested(depth: int, inside: str = "", begin: str = "(", end: str = ")") -> str:
    return begin * depth + inside + end * depth


def refused(text: str) -> Any:
    """Returns the diagnostic for a text, or None for one that may be parsed."""
    try:
        check_nesting(text, "it")
    except PathwaysError as error:
        return error.diagnostic
    return None


@pytest.mark.parametrize("brackets", ["()", "[]", "{}", "<>"])
def test_brackets_of_each_kind_nest_to_the_limit(brackets: str) -> None:
    assert refused(f"module {nested(DEEPEST_TEXT, '', *brackets)}") is None
    found = refused(f"\n\nmodule\n{nested(DEEPEST_TEXT + 1, '', *brackets)}")
    assert found.problem == f"brackets {DEEPEST_TEXT + 1} deep" and found.where.line == 4 and found.where.file == "it"


def test_closed_brackets_do_not_count() -> None:
    assert refused("module " + "()[]{}" * 400) is None
    assert refused("module " + "(]" * (DEEPEST_TEXT + 1)) is not None
    assert refused(f"module {'(' * (DEEPEST_TEXT - 1)} -> () -> ()") is None


def test_strings_and_comments_hold_no_brackets() -> None:
    many = "(" * (DEEPEST_TEXT + 1)
    assert refused(f'"{many}" // {many}\n"\\"{many}"') is None
    assert refused(f'"{many}\n{many}') is not None


@pytest.mark.parametrize("mark", ["#", "!"])
def test_an_alias_is_as_deep_as_what_it_stands_for(mark: str) -> None:
    defined = f"{mark}a = {nested(100, begin='[', end=']')}\n{mark}b = [{mark}a]\nmodule "
    assert refused(defined + nested(DEEPEST_TEXT - 101, f"{mark}b")) is None
    found = refused(defined + nested(DEEPEST_TEXT - 100, f"{mark}b"))
    assert found.problem == f"brackets {DEEPEST_TEXT + 1} deep" and found.where.line == 3
    assert refused(defined + nested(DEEPEST_TEXT, f"{mark}c")) is None


def test_an_alias_is_as_large_as_what_it_stands_for() -> None:
    aliases = ["#a0 = [1]", *(f"#a{n + 1} = [#a{n}, #a{n}]" for n in range(40))]
    found = refused("\n".join(aliases))
    assert found.problem == "aliases that expand to far more text than the input"
    assert 10 < found.where.line < 20  # 2^13 is the first power of two near the limit
    assert refused("\n".join(aliases[:11])) is None
    unused = "#a = [" + "(), " * (LARGEST_TEXT // 4) + "]\nmodule {}"
    assert refused(unused) is None and refused(unused.replace("(), ", "(), (), (), ")) is not None
    used = "#a = [" + "(), " * 1000 + "]\nmodule {}\n"
    assert refused(used + "%a = x.y #a\n" * 4) is None
    assert refused(used + "%a = x.y #a\n" * 1000) is not None


@pytest.mark.parametrize(("sign", "head"), [(" + ", "affine_map<(d0) -> "), (" floordiv ", "affine_set<(d0) : ")])
def test_sums_of_an_affine_map_nest_without_brackets(sign: str, head: str) -> None:
    def sums(count: int) -> str:
        return f"{head}({sign.join(['d0'] * (count + 1))})>"

    assert refused(sums(DEEPEST_TEXT - 3)) is None and refused(sums(DEEPEST_TEXT + 1)) is not None
    assert refused("\n".join([sums(200)] * 3)) is None
    assert refused(f"module {{}} {sign.join(['d0'] * 300)}") is None


PARTS = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "->",
    '"',
    "\\",
    "//",
    "\n",
    "#a",
    "!b",
    " = ",
    "#a = ",
    "x",
    "affine_map<",
)


@given(st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 200)), max_size=30))
def test_a_text_that_is_flat_by_its_count_is_so_by_its_tokens(parts: list[tuple[str, int]]) -> None:
    """The tokens of a text with closed brackets of other kinds are deeper, but MLIR does not read so far."""
    text = "".join(part * count for part, count in parts)
    if not is_flat_text(text):
        return
    scan = TextScan()
    for match in MLIR_TOKEN.finditer(text):
        close = match["close"]
        if close and (not scan.open or scan.open[-1] != BRACKET_PAIRS[close]):
            return
        assert scan.visit(match) <= DEEPEST_TEXT
        assert scan.total <= LARGEST_TEXT + MAX_GROWTH * len(text) and not (scan.defining and scan.size > LARGEST_TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "module {}",
        '#loc = loc("a")\nmodule {} loc(#loc)',
        "%a = x.y : () -> ()",
        "#a = 1\nmodule {}\n" + "x.y #a\n" * 1000,
    ],
)
def test_plain_texts_need_no_pass_over_their_tokens(text: str) -> None:
    assert is_flat_text(text)


@pytest.mark.parametrize(
    "text",
    ["// a", 'x "\\""', '"a\nb"', "x #a = 1", "#a = [\n]\nmodule", "affine_map<() -> ()>", "module {}}", "(" * 257],
)
def test_a_text_that_may_be_deep_is_not_flat(text: str) -> None:
    assert not is_flat_text(text)


@pytest.mark.parametrize("value", ["[{0}]", "tuple<{0}>", '\nloc("x"({0}))', "[\n{0}]"])
def test_aliases_whose_values_begin_on_the_next_line_are_as_deep(value: str) -> None:
    mark = "!" if "tuple" in value else "#"
    chain = [f"{mark}a{n + 1} =\n {value.format(f'{mark}a{n}')}" for n in range(DEEPEST_TEXT + 1)]
    text = "\n".join([f"{mark}a0 = f32", *chain, "module {}"])
    assert refused(text) is not None
    assert refused(text.replace("=\n", "=")) is not None


def test_aliases_whose_values_end_on_the_next_line_are_as_deep() -> None:
    chain = [f"#a{n + 1} = #x.y\n<#a{n}>" for n in range(DEEPEST_TEXT + 1)]
    assert refused("\n".join(["#a0 = 1", *chain, "module {}"])) is not None

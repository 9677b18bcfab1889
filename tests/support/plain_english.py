"""Finds text that breaks the rules of plain English, as far as a program can judge. `test_plain_english.py` uses it."""

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_SENTENCE_WORDS = 30
INTERROGATIVES = re.compile(r"(What|Who|Whom|Whose|Where|When|How|Which|Why)\b")
HOME_MADE = re.compile(
    r"\b(unasked|roll.?calls?|mailbox(es)?|goodbyes?|whose turn|lin(e|es|ed|ing) up|step(s|ped)? aside|"
    r"not heard of|is heard of|looks? at (once|again)|comes? in(?= (as|with|to))|so many)\b",
    re.IGNORECASE,
)
"""Terms of this project's own that have a term of the field. A term is added when its last use has gone."""
_RATIO = re.compile(r"SHARE|RATIO|FACTOR|SLOWDOWN|POSITIONS|WEIGHT")
"""Constants that relate two numbers of bytes or seconds."""
_UNITS = {
    re.compile(r"\b[Ss]econds?\b"): re.compile(r"_(S|MS|US|NS|MINUTES|SECONDS|PER_S|PER_BYTE)$|_S_PER_|_TIMEOUT$"),
    re.compile(r"\b[Bb]ytes?\b"): re.compile(r"BYTES|_SIZE$|_LIMIT$|_PER_BYTE$"),
}
_CODE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|https?://\S+")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[*|-] ")


@dataclass(frozen=True)
class Text:
    """A docstring, or the docstring of a field or constant. `is_boolean`: it describes a truth value."""

    line: int
    text: str
    is_boolean: bool = False


def docstrings(source: str) -> Iterator[Text]:
    """Yields every docstring of a module, of fields and constants, too."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body: list[ast.stmt] = getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []
        for before, statement in zip([None, *body], body, strict=False):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value: object = statement.value.value
                if isinstance(value, str):
                    yield Text(statement.lineno, value.strip(), _is_boolean(node if before is None else before))


def _is_boolean(described: ast.AST) -> bool:
    match described:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return _names_bool(described.returns)
        case ast.AnnAssign():
            return _names_bool(described.annotation)
        case ast.Assign():  # its type is not known here
            return True
        case _:
            return False


def _names_bool(annotation: ast.AST | None) -> bool:
    return annotation is not None and "bool" in ast.unparse(annotation)


def _value(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def long_sentences(text: str) -> Iterator[str]:
    """Yields sentences of more than MAX_SENTENCE_WORDS words; a name in backticks and a link are one word each.

    Blocks that are indented, such as examples and tables of options, are not sentences.
    """
    text = re.sub(r"^ {4,}\S.*$", "", inspect.cleandoc(text), flags=re.M)
    for sentence in _END_OF_SENTENCE.split(_CODE.sub("code", text)):
        is_example = any(mark in sentence for mark in ("|", "#", " = "))
        if not is_example and len(re.findall(r"[\w'-]+", sentence)) > MAX_SENTENCE_WORDS:
            yield " ".join(sentence.split())


def prose(markdown: str) -> str:
    """Returns a page without its blocks of code, tables, comments and headings."""
    text = re.sub(r"<!--.*?-->", "", markdown, flags=re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"^(    |\t|\||#|!\[|<).*$", "", text, flags=re.M)
    return text


def constants_without_unit(source: str) -> Iterator[tuple[int, str]]:
    """Yields numeric constants whose docstring says that they are seconds or bytes, and whose name does not."""
    body = ast.parse(source).body
    for before, statement in itertools.pairwise(body):
        target = _target(before)
        if target is None:
            continue
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            continue
        (name, value), text = target, statement.value.value
        if not isinstance(text, str) or not name.isupper() or _RATIO.search(name) or not _is_number(value):
            continue
        first = text.split(".")[0]
        has_unit = any(unit.search(name) for unit in _UNITS.values())
        if not has_unit and any(said.search(first) for said in _UNITS):
            yield before.lineno, name


def _target(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Returns the name and the value of an assignment to one name, annotated or not."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return name, value
        case _:
            return None


def _is_number(node: ast.AST) -> bool:
    """Whether an expression is made of numbers alone: 1 << 20, 2.5, 3 * 60."""
    allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(isinstance(each, allowed) for each in ast.walk(node)) and not isinstance(
        _value(node), str | bytes | bool
    )

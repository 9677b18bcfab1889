"""Generates the API page of `pathways` from its signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

import pathways as pw
from generate.markdown import escaped

HEAD = """# Python: `import pathways as pw`

Made from signatures and docstrings. Shapes are as in JAX; bytes, seconds and GB/s where a docstring says so; codes are
[errors](errors.md). What a `pw.Array` has of a `jax.Array`, as operators and methods, is not listed again.

"""
GROUPS = {
    "Programs": ("program", "Program", "Lowered", "Compiled", "load"),
    "Slices": ("make_virtual_device_set", "VirtualDeviceSet", "VirtualSlice", "VirtualDevice"),
    "Pipelines": (
        *("pipeline", "BatchSemantics", "MicrobatchWarning", "check_microbatches"),
        *("search", "Found", "SplitChoice"),
    ),
    "Arrays": ("Array", "save", "restore"),
    "Machines": (
        "Topology",
        "Island",
        "cluster",
        "connect",
        "islands",
        "add_island",
        "remove_island",
        "proxy",
        "Proxy",
    ),
    "Clients and what goes on": ("Client", "status", "trace", "quiet"),
    "Programs of Shardy's MPMD": ("from_mpmd", "mpmd_backend"),
    "Errors and faults": ("PathwaysError", "testing"),
}
"""Every public name of `pathways`, once. `page` raises ValueError if one is missing."""
GIVEN = {
    f"pw.{name}"
    for name in (
        *("Lowered", "Compiled", "Array", "VirtualSlice", "VirtualDevice", "Found"),
        *("BatchSemantics", "MicrobatchWarning", "PathwaysError"),
    )
}
"""Classes whose objects are returned by other functions; users do not call them."""
INNER = {"compiled", "run_flat", "unflatten", "check_limit", "lend", "stored", "stored_type", "described"}
"""Methods that are used only by other modules of the package."""
_MODULES = re.compile(
    r"\b(?:pathways|jax|jaxlib|numpy|collections|typing|pathlib|os|concurrent|types)(?:\.\w+)*\.(?=[A-Z])"
)


def public_names() -> set[str]:
    return {name for name in (*dir(pw), *pw.__all__) if not name.startswith("_")} & set(vars(pw)["_WHERE"])


def page() -> str:
    """Returns the page as Markdown, with a heading for each name and method.

    Raises ValueError for a name in no group, or in two.
    """
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != sorted(public_names()):
        raise ValueError(f"names in no group, or in two: {sorted(set(listed) ^ public_names())}")
    parts = [HEAD]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in names:
            parts += _entry(f"pw.{name}", getattr(pw, name), "###")
    return "\n".join(parts)


def _entry(name: str, value: Any, heading: str) -> Iterator[str]:
    yield f"{heading} `{name}` {{ #{name} }}\n"
    if isinstance(value, ModuleType):
        yield f"{_doc(value)}\n"
        own = [v for v in vars(value).values() if getattr(v, "__module__", "") == value.__name__]
        for function in (v for v in own if inspect.isfunction(v) and v.__name__[0] != "_"):
            yield from _entry(f"{name}.{function.__name__}", function, f"{heading}#")
        return
    if signature := _signature(name, value):
        yield f"```python\n{signature}\n```\n"
    if doc := _doc(value):
        yield f"{doc}\n"
    if inspect.isclass(value):
        for member, what in sorted(vars(value).items(), key=lambda item: not isinstance(item[1], property)):
            if _is_told(member, what):
                yield from _member(f"{name}.{member}", what, f"{heading}#")


def _is_told(name: str, what: Any) -> bool:
    """Returns whether a member is documented: it is public, and has a docstring or is `__call__`."""
    if name in INNER or not (isinstance(what, property | cached_property | classmethod | staticmethod | FunctionType)):
        return False
    return name == "__call__" or (name[0] != "_" and bool(_doc(what)))


def _member(name: str, what: Any, heading: str) -> Iterator[str]:
    if isinstance(what, property | cached_property):
        yield f"{heading} `{name}` {{ #{name} }}\n\n{_doc(what)}\n"
    else:
        yield from _entry(name, getattr(what, "__func__", what), heading)


def _signature(name: str, value: Callable[..., Any]) -> str:
    """Formats a signature as in the code. A long one has each argument on its own line."""
    if name in GIVEN:
        return ""
    signature = inspect.signature(value)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    returned = signature.return_annotation
    end = "" if inspect.isclass(value) or returned is signature.empty else f" -> {_type(returned)}"
    shown = list(_shown(parameters))
    line = f"{name}({', '.join(shown)}){end}"
    return line if len(line) <= 100 else "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){end}"])


def _shown(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        typed = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        yield f"{stars}{parameter.name}{typed}{default if typed else default.replace(' ', '')}"


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    return "..." if " at 0x" in repr(value) or type(value) is object else repr(value)


def _type(annotation: Any) -> str:
    """Formats an annotation with the public names of types."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULES.sub("", text).replace("'", "").replace("NoneType", "None")


def _doc(value: Any) -> str:
    """Returns the docstring of the value itself, not an inherited one."""
    own = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return escaped(inspect.cleandoc(own.__doc__ or ""))

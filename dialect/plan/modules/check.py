"""Applies all safety rules to one StableHLO module of a plan when a plan file is opened, long before XLA compiles it.
It always runs in the process that opens the file. For plans without this user's mark, a separate process runs it first.
Pure functions.

It needs only the module and what the plan states about it. `check_modules.py` calls it in this process, and
`vetting_process.py` in the separate one.
"""

from pathways.dialect.bare_mlir import Context, Module, Operation, bare_ir, read_portable
from pathways.dialect.plan.modules.calls import CalledFunction, check_calls
from pathways.dialect.plan.modules.operations import Checker, check_frontend
from pathways.dialect.plan.modules.signature import check_signature, meshes_stated
from pathways.dialect.plan.modules.stated_module import Refused, Stated
from pathways.dialect.plan.modules.walk import operations

_BYTECODE = b"ML\xefR"
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of the bindings for attributes of the wrong kind, and for strings that are not UTF-8."""
_COUNTS = {"mhlo.num_partitions", "mhlo.num_replicas"}


def read_module(raw: bytes, context: Context) -> Module:
    """Parses and verifies a module. Raises Refused if that fails."""
    if not raw.startswith(_BYTECODE):
        raise Refused(f"cannot be read: it begins with {raw[:4]!r}, bytecode with {_BYTECODE!r}")
    try:
        return read_portable(raw, context)
    except (ValueError, RuntimeError, bare_ir.MLIRError) as error:
        lines = str(error).strip().splitlines() or ["MLIR gives no reason"]
        raise Refused(f"cannot be read: {lines[0][:200]}") from None


def check_module(module: Module, stated: Stated, size: int, allowed: str = "") -> None:
    """Raises Refused if a module breaks a rule. `size`: its bytes in the file; `allowed`: further custom calls."""
    try:
        _check(module.operation, stated, Checker(stated.partitions, stated.platform, allowed, size))
    except _UNREADABLE as error:
        raise Refused(f"has attributes that cannot be read: {type(error).__name__}: {str(error)[:120]}") from None


def _check(module: Operation, stated: Stated, checker: Checker) -> None:
    _check_attributes(module, stated)
    functions = _functions(module)
    counted: dict[str, CalledFunction] = {}
    for name, function in functions.items():
        checker.check_function(function)
        count = counted[name] = CalledFunction()
        for inner, depth in operations(function):
            checker.check(inner)
            count.add(inner, depth)
    check_calls(counted)
    main = functions.get("main")
    if main is None:
        raise Refused("has no @main")
    if "sym_visibility" in main.attributes and main.attributes["sym_visibility"].value != "public":
        raise Refused("has a @main that is not public")
    check_signature(main, meshes_stated(module, stated.partitions), stated)


def _check_attributes(module: Operation, stated: Stated) -> None:
    attributes = module.attributes
    partitions = attributes["mhlo.num_partitions"].value if "mhlo.num_partitions" in attributes else 1
    replicas = attributes["mhlo.num_replicas"].value if "mhlo.num_replicas" in attributes else 1
    if partitions != stated.partitions:
        raise Refused("is for another number of devices")
    if replicas != 1:
        raise Refused(f"is for {replicas} replicas; computations of a plan are partitioned, never replicated")
    for named in attributes:
        name = named if isinstance(named, str) else named.name
        if name not in _COUNTS and name != "sym_name" and not name.startswith("jax."):
            raise Refused(f"has an attribute {name}, which JAX does not write")
    check_frontend(attributes, "the module")


def _functions(module: Operation) -> dict[str, Operation]:
    found: dict[str, Operation] = {}
    for op in module.regions[0].blocks[0].operations:
        operation = op.operation
        if operation.name == "sdy.mesh":
            continue
        if operation.name != "func.func":
            raise Refused(f"has a {operation.name} next to its functions")
        name: str = operation.attributes["sym_name"].value
        if not len(operation.regions[0].blocks):
            raise Refused(f"has a function @{name} without a body")
        found[name] = operation
    return found

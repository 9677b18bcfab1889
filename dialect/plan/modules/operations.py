"""Checks each operation in a StableHLO module of a plan: its dialect is known, its arrays have possible sizes, and it
does not wait for a host. `check.py` calls it.
"""

from dataclasses import dataclass, field

from pathways.dialect.bare_mlir import Attribute, Operation, Type, bare_ir
from pathways.dialect.dtypes import from_mlir
from pathways.dialect.known_custom_calls import LAPACK
from pathways.dialect.plan.modules.collectives import check_collective
from pathways.dialect.plan.modules.custom_calls import is_known
from pathways.dialect.plan.modules.lapack import check_lapack
from pathways.dialect.plan.modules.stated_module import Refused

MAX_VALUE_BYTES = 1 << 40
"""The most bytes of one array on each of its devices: more than any device has."""
MAX_CONSTANT_BYTES = 1 << 26
"""The most bytes of all constants of a module after XLA expands them; a module may have 8 times its own size."""

_SDY = {"manual_computation", "named_computation", "propagation_barrier", "return", "sharding_constraint"}
_DIALECTS: dict[str, set[str] | None] = {
    "stablehlo": None,
    "chlo": None,
    "func": {"call", "return"},
    "sdy": {*_SDY, "sharding_group"},
}
"""Operations that JAX emits, by dialect; None: all except those listed below."""
_HOST = {f"stablehlo.{name}" for name in ("infeed", "outfeed", "recv", "send")}
_DYNAMIC_NAMES = """
dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape get_dimension_size
real_dynamic_slice set_dimension_size
"""
_DYNAMIC = {f"stablehlo.{name}" for name in _DYNAMIC_NAMES.split()}
_TOKEN = "!stablehlo.token"


@dataclass
class Checker:
    """Checks the operations of a module one by one. Raises Refused."""

    partitions: int
    platform: str
    allowed: str
    size: int
    """The bytes of the module."""
    _constants: int = 0
    _types: dict[Type, int] = field(default_factory=dict[Type, int])

    def check_function(self, function: Operation) -> None:
        """Checks a function's arguments and attributes, but not its operations."""
        name: str = function.attributes["sym_name"].value
        if name.startswith("xla.sdy"):
            raise Refused(f"has a function @{name[:80]}, a name that is reserved for XLA")
        self._arguments(function)
        check_frontend(function.attributes, f"@{name}")
        for key in ("arg_attrs", "res_attrs"):
            if key not in function.attributes:
                continue
            for described in function.attributes[key]:
                if "mhlo.sharding" in described:
                    raise Refused(f"has an mhlo.sharding in @{name[:80]} in addition to Shardy's")

    def check(self, operation: Operation) -> None:
        name: str = operation.name
        dialect, _, kind = name.partition(".")
        known = _DIALECTS.get(dialect, set())
        if known is not None and kind not in known:
            raise Refused(f"has an operation {name}, which JAX does not write")
        if name in _HOST:
            raise Refused(f"waits for the host in {name}")
        if name in _DYNAMIC:
            raise Refused(f"makes arrays whose size depends on data, in {name}")
        for result in operation.results:
            self.bytes_of(result.type)
        if len(operation.regions):
            self._arguments(operation)
        if name == "stablehlo.constant":
            self._constant(operation)
        elif name == "stablehlo.custom_call":
            target: str = operation.attributes["call_target_name"].value
            if not is_known(target, self.platform, self.allowed):
                raise Refused(f"calls {target}", target)
            if target in LAPACK:
                check_lapack(operation, target)
        else:
            check_collective(operation, self.partitions)
        if "mhlo.sharding" in operation.attributes:
            raise Refused(f"has an mhlo.sharding on {name} in addition to Shardy's")
        check_frontend(operation.attributes, name)

    def bytes_of(self, type_: Type) -> int:
        """Returns the bytes of a value, all shards together."""
        found = self._types.get(type_)
        if found is None:
            found = self._types[type_] = _bytes(type_, MAX_VALUE_BYTES * self.partitions)
        return found

    def _arguments(self, operation: Operation) -> None:
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    self.bytes_of(argument.type)

    def _constant(self, operation: Operation) -> None:
        self._constants += self.bytes_of(operation.results[0].type)
        limit = max(MAX_CONSTANT_BYTES, 8 * self.size)
        if self._constants > limit:
            raise Refused(f"has constants of {self._constants} bytes, more than {limit}")


def check_frontend(attributes: Attribute, what: str) -> None:
    """Raises Refused if frontend attributes contain shardings, which XLA would read in addition to the checked ones."""
    if "mhlo.frontend_attributes" in attributes:
        frontend = attributes["mhlo.frontend_attributes"]
        if not isinstance(frontend, bare_ir.DictAttr) or any(named.name.startswith("xla.sdy") for named in frontend):
            raise Refused(f"has shardings in the frontend attributes of {what}")


def _bytes(type_: Type, limit: int) -> int:
    if str(type_) == _TOKEN:
        return 0
    if not isinstance(type_, bare_ir.RankedTensorType):
        raise Refused(f"has a value of type {str(type_)[:80]}, which is not an array")
    if not type_.has_static_shape or type_.encoding is not None:
        raise Refused(f"has an array {str(type_)[:80]}, whose shape is not fixed")
    try:
        size = from_mlir(type_).bytes
    except (KeyError, TypeError):
        raise Refused(f"has an array of {str(type_.element_type)[:80]}") from None
    if size > limit:
        raise Refused(f"has an array {str(type_)[:80]} of {size} bytes, more than all its devices can hold")
    return size

"""Graphs as JSON, and the checks on JSON that nobody has vouched for.

A bundle may come from anywhere: every value is looked at through :class:`Value`, which says where in the document it
stands, and nothing is built from a value before its type and range are known. Operators and their parameters are read
and written by the names of their dataclass fields; ``docs/bundle.md`` lists them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from bnnrt.errors import BundleError, GraphError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import OPS, Domain, TensorType, Window

__all__ = [
    "MAX_RANK",
    "Value",
    "decode_graph",
    "decode_parameters",
    "decode_type",
    "encode_graph",
    "encode_parameters",
    "encode_type",
    "parse",
]

INT32 = 1 << 31
FLOAT32_MAX = 3.4028234663852886e38
MAX_RANK = 6
# Twenty digits hold any 64-bit number; longer literals only cost time, quadratic in their length on older Pythons.
MAX_DIGITS = 20


def parse(text: str) -> Any:
    """JSON without what JSON leaves open: no key twice, no NaN or infinity, no integer beyond 20 digits, only Unicode.

    Raises BundleError.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_finite
        )
        if "\\u" in text:
            # An escape can spell half of a surrogate pair, which no terminal, file or safetensors header can hold.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise BundleError("JSON is nested too deeply") from None
    except ValueError as e:
        raise BundleError(f"JSON is malformed: {e}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return values


def _integer(literal: str) -> int:
    if len(literal) > MAX_DIGITS:
        raise ValueError("a number has too many digits")
    return int(literal)


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


@dataclass(frozen=True)
class Value:
    """A value of an untrusted JSON document. Every method raises BundleError where the value is not what it expects.

    ``where`` is its place in the document. ``newer`` says that the document is of a newer minor version, whose
    objects may hold keys that this reader does not know.
    """

    raw: Any
    where: str
    newer: bool = False

    def fail(self, problem: str) -> NoReturn:
        raise BundleError(f"{self.where} {problem}")

    def mapping(self) -> dict[str, Value]:
        """The members of an object with any keys."""
        if type(self.raw) is not dict:
            self.fail(f"is {_kind(self.raw)}, not an object")
        return {key: self._child(value, f".{_short(key)}") for key, value in self.raw.items()}

    def fields(self, *names: str, optional: Collection[str] = (), closed: bool = False) -> dict[str, Value]:
        """The members of an object with exactly these keys, of which the ``optional`` ones may be missing.

        ``closed`` refuses others in newer versions, too.
        """
        members = self.mapping()
        for name in names:
            if name not in members:
                self.fail(f"has no key {name}")
        unknown = members.keys() - {*names, *optional}
        if unknown and (closed or not self.newer):
            self.fail(f"has an unknown key {_short(min(unknown))}")
        return members

    def items(self, most: int | None = None) -> list[Value]:
        """The elements of an array, of at most ``most``."""
        if type(self.raw) is not list:
            self.fail(f"is {_kind(self.raw)}, not an array")
        if most is not None and len(self.raw) > most:
            self.fail(f"has {len(self.raw)} elements; at most {most} are possible")
        return [self._child(value, f"[{i}]") for i, value in enumerate(self.raw)]

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def text(self) -> str:
        if type(self.raw) is not str:
            self.fail(f"is {_kind(self.raw)}, not a string")
        return self.raw

    def integer(self, least: int = -INT32, most: int = INT32 - 1) -> int:
        # bool is a subclass of int, so the exact type is asked for.
        if type(self.raw) is not int:
            self.fail(f"is {_kind(self.raw)}, not an integer")
        if not least <= self.raw <= most:
            self.fail(f"is {self.raw}, not between {least} and {most}")
        return self.raw

    def boolean(self) -> bool:
        if type(self.raw) is not bool:
            self.fail(f"is {_kind(self.raw)}, not a boolean")
        return self.raw

    def number(self) -> float:
        """A number in the range of float32."""
        if type(self.raw) not in (int, float):
            self.fail(f"is {_kind(self.raw)}, not a number")
        if not abs(self.raw) <= FLOAT32_MAX:
            self.fail("is beyond the range of float32")
        return float(self.raw)

    def member(self, kind: type[Enum]) -> Any:
        """The member of ``kind`` whose value this is."""
        text = self.text()
        try:
            return kind(text)
        except ValueError:
            self.fail(f"is none of {', '.join(str(m.value) for m in kind)}")

    def _child(self, raw: Any, step: str) -> Value:
        return Value(raw, self.where + step, self.newer)


def _short(text: str) -> str:
    """``text`` as an error message can show it."""
    return text if len(text) <= 60 else text[:60] + "..."


def _kind(raw: Any) -> str:
    """What JSON calls the type of ``raw``."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}
    return "null" if raw is None else names.get(type(raw), "a number")


def encode_type(tensor_type: TensorType) -> dict[str, Any]:
    return {"domain": tensor_type.domain.value, "shape": list(tensor_type.shape)}


def decode_type(members: Mapping[str, Value]) -> TensorType:
    """The type that the members ``domain`` and ``shape`` of an object give."""
    domain = members["domain"].member(Domain)
    shape = members["shape"]
    sizes = tuple(None if item.raw is None else item.integer(least=1) for item in shape.items(MAX_RANK))
    try:
        return TensorType(sizes, domain)
    except GraphError as e:
        shape.fail(f"does not hold: {e}")


def encode_graph(graph: Graph, stored: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object of a graph.

    Args:
        stored: the name of the stored tensor for each of the graph's constants.
    """
    return {
        "inputs": [{"name": name, **encode_type(tensor_type)} for name, tensor_type in graph.inputs.items()],
        "nodes": [
            {
                "name": node.name,
                "op": type(node.op).__name__,
                "parameters": encode_parameters(node.op),
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
            }
            for node in graph.nodes
        ],
        "outputs": list(graph.outputs),
        "constants": {name: stored[name] for name in graph.constants},
    }


def decode_graph(value: Value, tensors: Mapping[str, Constant]) -> Graph:
    """Inverse of :func:`encode_graph`.

    Args:
        tensors: the stored tensors by name.

    Raises:
        BundleError: the object is malformed, or the graph it describes is inconsistent.
    """
    members = value.fields("inputs", "nodes", "outputs", "constants")
    inputs: dict[str, TensorType] = {}
    for item in members["inputs"].items():
        port = item.fields("name", "domain", "shape")
        name = port["name"].text()
        if name in inputs:
            item.fail("has the name of another input")
        inputs[name] = decode_type(port)
    constants: dict[str, Constant] = {}
    for name, item in members["constants"].mapping().items():
        tensor = item.text()
        if tensor not in tensors:
            item.fail("is not among the tensors")
        constants[name] = tensors[tensor]
    nodes = tuple(_decode_node(item) for item in members["nodes"].items())
    try:
        return Graph(inputs, nodes, members["outputs"].texts(), constants)
    except GraphError as e:
        value.fail(f"is inconsistent: {e}")


def _decode_node(value: Value) -> Node:
    members = value.fields("name", "op", "parameters", "inputs", "outputs")
    op = members["op"].text()
    if op not in OPS:
        members["op"].fail(f"is an unknown operator, {_short(op)}")
    return Node(
        name=members["name"].text(),
        op=decode_parameters(OPS[op], members["parameters"]),
        inputs=members["inputs"].texts(),
        outputs=members["outputs"].texts(),
    )


def _fields(kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass and their types."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind)}


_PARAMETERS: Mapping[type[Any], Mapping[str, Any]] = {
    Window: _fields(Window),
    **{op: _fields(op) for op in OPS.values()},
}
"""The dataclasses that a document may name, directly or as a parameter, each with its fields."""


def encode_parameters(value: Any) -> dict[str, Any]:
    """The JSON object of an operator's parameters, or of a window."""
    return {name: _encode_parameter(getattr(value, name)) for name in _PARAMETERS[type(value)]}


def _encode_parameter(value: Any) -> Any:
    if is_dataclass(value):
        return encode_parameters(value)
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def decode_parameters(kind: type[Any], value: Value) -> Any:
    """An instance of ``kind``, an operator or Window, from an object with exactly its fields. Raises BundleError."""
    types = _PARAMETERS[kind]
    members = value.fields(*types, closed=True)
    try:
        return kind(**{name: _decode_parameter(tensor_type, members[name]) for name, tensor_type in types.items()})
    except GraphError as e:
        value.fail(f"is refused: {e}")


def _decode_parameter(kind: Any, value: Value) -> Any:
    if kind is int:
        return value.integer()
    if kind is float:
        return value.number()
    if get_origin(kind) is tuple:
        *elements, last = get_args(kind)
        items = value.items(MAX_RANK)
        if last is not Ellipsis and len(items) != len(elements) + 1:
            value.fail(f"has {len(items)} elements, not {len(elements) + 1}")
        return tuple(item.integer() for item in items)
    if issubclass(kind, Enum):
        return value.member(kind)
    return decode_parameters(kind, value)

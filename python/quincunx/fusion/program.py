"""A region as text: its torch operators with their arguments, its inputs' types, its results.

The text travels inside the graphs that Inductor caches, so that another process, or another machine, can compile the
region again without the process that found it. It is data: reading it runs nothing.
"""

import dataclasses
import functools
import hashlib
import json
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

_HINT = 16  # of a size that is chosen at run time; any that is not special will do


class NotExpressible(Exception):
    """A region holds what a program cannot; the message says what."""


def node_value(node: fx.Node) -> Any:
    """What tracing recorded for `node`: a fake tensor, a size, or a list of them."""
    if "val" not in node.meta:
        raise NotExpressible(f"nothing is known about the value of {node.name}")
    return node.meta["val"]


def memory_order(tensor: torch.Tensor) -> list[int]:
    """The dims of a dense tensor, largest stride first; row-major order for what is not dense."""
    dims = list(range(tensor.dim()))
    if tensor.is_contiguous():
        return dims
    sizes, strides = tensor.shape, tensor.stride()
    order: list[int] = []
    product, left = 1, dims.copy()
    while left:
        # The stride of a dim with one element says nothing.
        found = next((dim for dim in reversed(left) if _same(sizes[dim], 1) or _same(strides[dim], product)), None)
        if found is None:
            return dims
        order.insert(0, found)
        left.remove(found)
        product = product * sizes[found]
    return order


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _same(first: Any, second: Any) -> bool:
    return bool(_expression(first) == _expression(second))


@dataclasses.dataclass(frozen=True)
class Program:
    """`text` says all; `key` is derived from it and names the compiled region."""

    text: str

    @functools.cached_property
    def key(self) -> int:
        digest = hashlib.sha256(self.text.encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1  # fits a signed integer

    @classmethod
    def of_nodes(
        cls, nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], *, weight: int = -1
    ) -> "Program":
        """`nodes` in graph order; `inputs` are the tensors that they read from outside, `outputs` some of `nodes`.
        `weight`: which of the inputs the kernel packs.
        """
        data = _Writer(inputs).write(nodes, outputs)
        if weight >= 0:
            data["weights"] = [weight]
        return cls(json.dumps(data, separators=(",", ":")))


class _Writer:
    def __init__(self, inputs: Sequence[fx.Node]) -> None:
        self.symbols: dict[Any, int] = {}
        self.smallest: list[int] = []
        self.numbers = {node: number for number, node in enumerate(inputs)}
        self.inputs = [self.tensor_type(node) for node in inputs]

    def write(self, nodes: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> dict[str, Any]:
        lines = []
        for node in nodes:
            arguments = [self.argument(value) for value in node.args]
            keywords = {name: self.argument(value) for name, value in node.kwargs.items()}
            lines.append([self.operator(node.target), arguments, keywords])
            self.numbers[node] = len(self.numbers)
        results = [[self.numbers[node], memory_order(node_value(node))] for node in outputs]
        return {"symbols": self.smallest, "inputs": self.inputs, "nodes": lines, "outputs": results}

    def tensor_type(self, node: fx.Node) -> list[Any]:
        value = node_value(node)
        if not isinstance(value, torch.Tensor):
            raise NotExpressible(f"{node.name} is not a tensor")
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise NotExpressible(f"{node.name} is on {value.device} with layout {value.layout}")
        return [str(value.dtype).removeprefix("torch."), [self.size(size) for size in value.shape]]

    def size(self, size: Any) -> Any:
        """An int, or [multiplier, number of the symbol, summand]. What is not affine becomes a symbol of its own."""
        expression = _expression(size)
        if isinstance(expression, int) or expression.is_Integer:
            return int(expression)
        symbols = list(expression.free_symbols)
        if len(symbols) == 1:
            multiplier = expression.coeff(symbols[0], 1)
            summand = expression - multiplier * symbols[0]
            if multiplier.is_Integer and multiplier != 0 and summand.is_Integer:
                return [int(multiplier), self.symbol(symbols[0], size), int(summand)]
        return [1, self.symbol(expression, size), 0]

    def symbol(self, expression: Any, size: torch.SymInt) -> int:
        if expression not in self.symbols:
            self.symbols[expression] = len(self.symbols)
            self.smallest.append(max(0, int(size.node.shape_env.bound_sympy(expression).lower)))
        return self.symbols[expression]

    def operator(self, target: Any) -> str:
        if target is operator.getitem:
            return "getitem"
        if isinstance(target, torch._ops.OpOverload):
            return f"{target.namespace}.{target._opname}.{target._overloadname}"
        raise NotExpressible(f"{target} is not an operator of the dispatcher")

    def argument(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            known = self.numbers.get(value)
            if known is not None:
                return {"value": known}
            recorded = node_value(value)
            if isinstance(recorded, (torch.SymInt, int)) and not isinstance(recorded, bool):
                return {"size": self.size(recorded)}
            raise NotExpressible(f"{value.name} comes from outside of the region and is no input of it")
        if isinstance(value, (list, tuple)):
            return [self.argument(element) for element in value]
        if isinstance(value, torch.SymInt):
            return {"size": self.size(value)}
        if isinstance(value, float):
            return {"float": value.hex()}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        return self.torch_constant(value)

    def torch_constant(self, value: Any) -> dict[str, str]:
        if isinstance(value, torch.device) and value.type == "cpu":
            return {"device": "cpu"}
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        raise NotExpressible(f"the argument {value!r} has no place in a region")


class Reader:
    """Makes the fx graph of a program again, with what importing it needs to know about each value."""

    def __init__(self, text: str) -> None:
        self.data = json.loads(text)
        self.environment = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.environment)
        self.graph = fx.Graph()
        self.nodes: list[fx.Node] = []
        self.symbols = [self._symbol(number, smallest) for number, smallest in enumerate(self.data["symbols"])]

    def _symbol(self, number: int, smallest: int) -> fx.Node:
        node = self.graph.placeholder(f"s{number}")
        source = torch._dynamo.source.ConstantSource(f"quincunx_{number}")
        symbol = self.environment.create_symbol(
            _HINT + number, source, dynamic_dim=DimDynamic.DYNAMIC, do_not_specialize_zero_one=smallest < 2
        )
        node.meta["val"] = self.environment.create_symintnode(symbol, hint=_HINT + number, source=source)
        return node

    def read(self) -> fx.GraphModule:
        """Takes the program's symbols first, then its inputs; gives the list of its results."""
        with self.mode:
            for number, (dtype, shape) in enumerate(self.data["inputs"]):
                node = self.graph.placeholder(f"input{number}")
                sizes = [self._size_value(size) for size in shape]
                node.meta["val"] = torch.empty(sizes, dtype=getattr(torch, dtype))
                self.nodes.append(node)
            for name, arguments, keywords in self.data["nodes"]:
                self._call(name, arguments, keywords)
        outputs = [self.nodes[number] for number, _ in self.data["outputs"]]
        self.graph.output(outputs)
        return fx.GraphModule(torch.nn.Module(), self.graph)

    def _call(self, name: str, arguments: list, keywords: dict) -> None:
        args = tuple(self._argument(value) for value in arguments)
        kwargs = {key: self._argument(value) for key, value in keywords.items()}
        target = operator.getitem if name == "getitem" else _find_operator(name)
        node = self.graph.call_function(target, args, kwargs)
        values, named = fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
        node.meta["val"] = target(*values, **named)
        self.nodes.append(node)

    def _size_value(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        multiplier, symbol, summand = size
        return multiplier * self.symbols[symbol].meta["val"] + summand

    def _size(self, size: Any) -> Any:
        """An int, or the node that computes the size."""
        if isinstance(size, int):
            return size
        multiplier, symbol, summand = size
        node = self.symbols[symbol]
        for function, operand, neutral in ((operator.mul, multiplier, 1), (operator.add, summand, 0)):
            if operand != neutral:
                value = function(node.meta["val"], operand)
                node = self.graph.call_function(function, (node, operand))
                node.meta["val"] = value
        return node

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(element) for element in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "value":
            return self.nodes[content]
        if kind == "size":
            return self._size(content)
        if kind == "float":
            return float.fromhex(content)
        if kind == "device":
            return torch.device(content)
        constant = getattr(torch, content)
        if type(constant).__name__ != kind:
            raise ValueError(f"program: torch.{content} is not a {kind}")
        return constant


def _find_operator(name: str) -> torch._ops.OpOverload:
    namespace, operation, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operation), overload)


def result_types(text: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fake results of a program for fake inputs, with the memory order that its kernel gives them."""
    data = json.loads(text)
    module = reference_module(text)
    values = module(*symbol_values(data, inputs), *inputs)
    return [
        torch.empty_permuted(value.shape, order, dtype=value.dtype, device=value.device)
        for value, (_, order) in zip(values, data["outputs"], strict=True)
    ]


def symbol_values(data: dict[str, Any], inputs: Sequence[torch.Tensor]) -> list[Any]:
    """The sizes that a program's symbols have for these inputs."""
    values: list[Any] = [None] * len(data["symbols"])
    for tensor, (_, shape) in zip(inputs, data["inputs"], strict=True):
        for actual, size in zip(tensor.shape, shape, strict=True):
            if isinstance(size, list) and size[0] and values[size[1]] is None:
                multiplier, symbol, summand = size
                values[symbol] = actual if (multiplier, summand) == (1, 0) else (actual - summand) // multiplier
    if None in values:
        raise NotExpressible(f"the size s{values.index(None)} can be read from no input of the region")
    return values


@functools.lru_cache(maxsize=1024)
def reference_module(text: str) -> fx.GraphModule:
    """The program as a module of torch's operators: what the kernel's results must be."""
    return Reader(text).read()


def run_reference(text: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a program, computed by torch's operators."""
    data = json.loads(text)
    values = reference_module(text)(*symbol_values(data, inputs), *inputs)
    return [
        torch.empty_permuted(value.shape, order, dtype=value.dtype).copy_(value)
        for value, (_, order) in zip(values, data["outputs"], strict=True)
    ]

"""Session: converted models run from Python on arrays of torch or NumPy, without a copy."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .._graph import load_core

__all__ = ["Session"]


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _prepared(name: str, value: Any) -> Any:
    """Something with __dlpack__: NumPy's array of a number or a list, a torch tensor without its gradient."""
    if _is_torch(value):
        if value.device.type != "cpu" or str(value.layout) != "torch.strided":
            raise TypeError(f"{name}: expected a dense tensor on the CPU, got {value.layout} on {value.device}")
        return value.detach()
    if hasattr(value, "__dlpack__"):
        return value
    if isinstance(value, bool | int | float | list | tuple):
        import numpy

        return numpy.asarray(value)
    raise TypeError(f"{name}: expected a tensor, an array or numbers, got {type(value).__name__}")


class Session:
    """The methods of a converted model.

    `source` is the path of a .qxm file, a graph of `quincunx._core`, or a list of graphs. `num_threads` sets the number
    of threads of the process's pool; 0 leaves it. With `rewrites=False` the graphs run as they are, without constant
    folding and fused epilogues. With `check_weights=False` a file is loaded without reading all of its weights for
    their checksum. One call at a time: one that begins while another thread's runs raises RuntimeError.

        session = Session("model.qxm")
        (logits,) = session.run(tokens)
    """

    def __init__(self, source: Any, *, num_threads: int = 0, rewrites: bool = True, check_weights: bool = True) -> None:
        core = load_core()
        if isinstance(source, str | os.PathLike):
            self._session = core.Session.load(os.fspath(source), num_threads, rewrites, check_weights)
        else:
            graphs = list(source) if isinstance(source, list | tuple) else [source]
            for graph in graphs:
                if not isinstance(graph, core.Graph):
                    raise TypeError(f"source: expected the path of a .qxm or graphs, got {type(graph).__name__}")
            self._session = core.Session.create(graphs, num_threads=num_threads, rewrites=rewrites)
        self.methods: dict[str, dict[str, Any]] = self._session.methods()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Any]:
        """The compiled session, for this call alone: its arena and its states serve one call at a time."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "session: another call is using it; expected one at a time, or a session for each thread"
            )
        try:
            yield self._session
        finally:
            self._lock.release()

    def _method(self, name: str | None) -> str:
        if name is None and len(self.methods) > 1:
            raise ValueError(f"method: expected one of {sorted(self.methods)}, got None")
        return next(iter(self.methods)) if name is None else name

    def _ordered(self, method: str, inputs: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        if method not in self.methods:
            raise ValueError(f"method: expected one of {sorted(self.methods)}, got {method!r}")
        names = [name for name, _, _ in self.methods[method]["inputs"]]
        values = dict(zip(names, inputs, strict=False))
        if len(inputs) > len(names) or named.keys() & values.keys() or named.keys() - set(names):
            raise ValueError(f"inputs: expected each of {names} once, got {len(inputs)} in order and {sorted(named)}")
        values |= named
        if missing := [name for name in names if name not in values]:
            raise ValueError(f"inputs: {missing} are missing")
        return [_prepared(name, values[name]) for name in names]

    def run(
        self,
        *inputs: Any,
        method: str | None = None,
        out: Sequence[Any] | None = None,
        timeout_s: float | None = None,
        profile: Any = None,
        **named: Any,
    ) -> list[Any]:
        """The outputs of a call: torch tensors if an input is one, else NumPy arrays.

        Inputs are given in order or by name. `out` is a list of contiguous tensors that the outputs are written to.
        `profile` is a `quincunx._core.Profile` that the time of each operator is added to. TimeoutError after
        `timeout_s`.
        """
        method = self._method(method)
        values = self._ordered(method, inputs, named)
        with self.exclusive() as compiled:
            results = compiled.run(method, values, None if out is None else list(out), timeout_s, profile)
        if out is not None:
            return list(out)
        if any(_is_torch(value) for value in values):
            import torch

            return [torch.from_dlpack(result) for result in results]
        import numpy

        return [numpy.from_dlpack(result) for result in results]

    def memory(self, *shapes: Sequence[int], method: str | None = None) -> dict[str, int]:
        """Bytes that a call with inputs of these shapes needs; nothing is computed."""
        with self.exclusive() as compiled:
            return compiled.memory(self._method(method), [list(shape) for shape in shapes])

    def output_shapes(self, *shapes: Sequence[int], method: str | None = None) -> list[tuple[int, ...]]:
        """The shapes of the outputs of such a call."""
        with self.exclusive() as compiled:
            result = compiled.output_shapes(self._method(method), [list(shape) for shape in shapes])
        return [tuple(shape) for shape in result]

    def state(self, name: str) -> Any:
        """A state as an array in the session's own memory: to read it, or to write it between calls."""
        import numpy

        return numpy.from_dlpack(self._session.state(name))

    def reset_states(self) -> None:
        """All states as they were when the model was loaded."""
        with self.exclusive() as compiled:
            compiled.reset_states()

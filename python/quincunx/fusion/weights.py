"""Which inputs of a graph are weights, and how long what is made of one may be kept."""

import weakref

import torch
from torch import fx

from quincunx.fusion import _extension


def find_weights(graph: fx.Graph) -> list[fx.Node]:
    """Inputs that are the same tensors in many calls: a module's parameters and buffers in a graph of inference.

    In training they change at each step: nothing that is made of them could be used twice.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    # AOTAutograd's names: arg0_1 ... in inference, primals_1 ... and tangents_1 ... in training.
    if not placeholders or not all(node.name.startswith("arg") for node in placeholders):
        return []
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return []
    fixed = [placeholders[index] for index in metadata.static_input_indices if index < len(placeholders)]
    return [node for node in fixed if isinstance(node.meta.get("val"), torch.Tensor)]


_watched: dict[int, weakref.finalize] = {}


def watch(weight: torch.Tensor, entry: int) -> None:
    """Lets go of an entry of packed weights when `weight` is gone, or has got another entry for other memory."""
    identity = id(weight)
    if (earlier := _watched.pop(identity, None)) is not None:
        earlier()
    finalizer = weakref.finalize(weight, _drop, identity, entry)
    finalizer.atexit = False
    _watched[identity] = finalizer


def _drop(identity: int, entry: int) -> None:
    _watched.pop(identity, None)
    _extension.load().drop_packed_weight(entry)

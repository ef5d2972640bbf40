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
    # FSDP gathers the parameters anew at each call and frees them after it: a packed copy would keep what it frees.
    if any(guard.is_fsdp_module() for guard in context.guards_context.dynamo_guards):
        return []
    fixed = [placeholders[index] for index in metadata.static_input_indices if index < len(placeholders)]
    return [node for node in fixed if isinstance(node.meta.get("val"), torch.Tensor)]


# For each watched tensor, by its id, the address of its memory and what lets go of the entries for that memory: two
# where it is read as it is and transposed.
_watched: dict[int, tuple[int, list[weakref.finalize]]] = {}


def watch(weight: torch.Tensor, entry: int) -> None:
    """Lets go of an entry of packed weights when `weight` is gone, or has got an entry for other memory."""
    identity, address = id(weight), weight.data_ptr()
    known_address, finalizers = _watched.get(identity, (address, []))
    if known_address != address:
        for earlier in finalizers:
            earlier()
        finalizers = []
    finalizer = weakref.finalize(weight, _drop, identity, entry)
    finalizer.atexit = False
    _watched[identity] = (address, [*(each for each in finalizers if each.alive), finalizer])


def _drop(identity: int, entry: int) -> None:
    _watched.pop(identity, None)
    _extension.load().drop_packed_weight(entry)

"""Which linear layers are output heads: decided from where they stand in the model, and from names only where a name
cannot mean anything else (`attention.output` is a hidden layer, a model's own `output` is not)."""

import collections
import re
from collections.abc import Iterator

from torch import nn

_NAMES_ANYWHERE = ("lm_head", "unembed", "unembedding", "embed_out")
_NAMES_AT_THE_TOP = ("head", "heads", "output", "output_layer", "classifier", "score", "fc")
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def output_heads(model: nn.Module) -> dict[nn.Module, str]:
    """Each output head and the reason why it is one."""
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    heads = {}
    for name, module in linears.items():
        if name.rpartition(".")[2] in _NAMES_ANYWHERE:
            heads[module] = f"output head: called {name.rpartition('.')[2]}"
    for name, module in _named_at_the_top(model):
        heads.setdefault(module, f"output head: last linear layer of the model's {name}")
    for module, embedding in _as_large_as_an_embedding(model, linears):
        heads.setdefault(module, f"output head: as many rows as {embedding or 'the embedding'} has entries")
    return heads


def _levels(model: nn.Module) -> Iterator[nn.Module]:
    """The model, and what it merely wraps."""
    while True:
        yield model
        children = [child for child in model.children() if next(child.parameters(), None) is not None]
        if len(children) != 1:
            return
        model = children[0]


def _named_at_the_top(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for level in _levels(model):
        for name, child in level.named_children():
            inner = [module for module in child.modules() if isinstance(module, nn.Linear)]
            if name in _NAMES_AT_THE_TOP and inner:
                yield name, inner[-1]


def _as_large_as_an_embedding(model: nn.Module, linears: dict[str, nn.Linear]) -> Iterator[tuple[nn.Module, str]]:
    """Linear layers with a row for each entry of an embedding.

    The number may be a hidden width as well (1024 positions in a model of width 1024). It is one where a linear layer
    reads that many inputs or where the same layer of several numbered blocks has that many rows; then only the last
    linear layer of the model counts.
    """
    embeddings = {
        m.num_embeddings: name for name, m in reversed(list(model.named_modules())) if isinstance(m, _EMBEDDINGS)
    }
    hidden_widths = {module.in_features for module in linears.values()}
    places = collections.Counter(map(_place_in_block, linears))
    last = next(reversed(linears.values()), None)
    for name, module in linears.items():
        is_repeated = places[_place_in_block(name)] > 1 and not name.rpartition(".")[2].isdigit()
        is_hidden = module.out_features in hidden_widths or is_repeated
        if module.out_features in embeddings and (module is last or not is_hidden):
            yield module, embeddings[module.out_features]


def _place_in_block(name: str) -> str:
    return re.sub(r"(^|\.)\d+(?=\.)", r"\1*", name)

"""Parts of a model that the user names: each becomes regions of its own, under that name."""

import contextlib

import torch
from torch import fx

_KEY = "quincunx_region"
_MAX_LENGTH = 64


def region(name: str) -> contextlib.AbstractContextManager:
    """`with region("name"):` inside a compiled function. Its operators share no region with those outside, and theirs
    are called after it in reports. Without torch.compile it does nothing.
    """
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _MAX_LENGTH:
        raise ValueError(f"name is {name!r}; expected an identifier of at most {_MAX_LENGTH} characters")
    return torch.fx.traceback.annotate({_KEY: name})


def label_of(node: fx.Node) -> str:
    """The innermost label around the code that `node` comes from, or ""."""
    custom = node.meta.get("custom")
    return custom.get(_KEY, "") if isinstance(custom, dict) else ""

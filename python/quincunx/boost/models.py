"""The models that can be boosted, by the name of their class; users add theirs."""

from collections.abc import Callable
from typing import Any

from .changes import Changes
from .config import BoostConfig
from .wan import boost_wan

BoostFunction = Callable[[Any, BoostConfig], Changes]

SUPPORTED_MODELS: dict[str, BoostFunction] = {
    "WanTransformer3DModel": boost_wan,
    "WanPipeline": boost_wan,
    "WanImageToVideoPipeline": boost_wan,
    "WanVideoToVideoPipeline": boost_wan,
}


def register_model(model: type | str, boost_fn: BoostFunction) -> None:
    """Makes boost() take instances of a class, or of the classes of a name, and of their subclasses.

    boost_fn(pipe, config) returns the planned Changes and changes nothing itself. Raises ValueError for a name that is
    registered already.
    """
    name = model.__name__ if isinstance(model, type) else model
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeError(f"model: expected a class or the name of one, got {model!r}")
    if not callable(boost_fn):
        raise TypeError(f"boost_fn: expected a function of the pipeline and its BoostConfig, got {boost_fn!r}")
    if name in SUPPORTED_MODELS:
        raise ValueError(f"model: {name} is registered already, for {SUPPORTED_MODELS[name].__qualname__}")
    SUPPORTED_MODELS[name] = boost_fn


def boost_function(pipe: Any) -> BoostFunction:
    """That of the first class of pipe's, in method resolution order, that is registered."""
    for cls in type(pipe).__mro__:
        if cls.__name__ in SUPPORTED_MODELS:
            return SUPPORTED_MODELS[cls.__name__]
    raise ValueError(
        f"pipe: expected one of {', '.join(sorted(SUPPORTED_MODELS))}, got {type(pipe).__name__}; "
        "register_model(the class, boost_fn) adds a model"
    )

"""The step of a conversion that runs the fusion compiler: regions become tile programs."""

from typing import Any

from .tokenizer import load_module


def fuse_methods(methods: list[Any]) -> tuple[list[Any], dict[str, list[Any]]]:
    """The methods with their regions as qx.tile nodes, and for each method the regions (name, kind, nodes)."""
    try:
        compiled = load_module("_regions")
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"regions: the fusion compiler is missing ({error}); it needs a build with QX_BUILD_COMPILER=ON and the "
            "Debian package libmlir-22, or convert with regions=False (qx convert --no-regions)"
        ) from error
    fused, regions = [], {}
    for method in methods:
        graph, made = compiled.make_tile_regions(method)
        fused.append(graph)
        regions[graph.name] = made
    return fused, regions

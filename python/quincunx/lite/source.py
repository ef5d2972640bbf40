"""What is converted: a module with example inputs, and what its tokenizer and its use need to be known."""

import dataclasses
import importlib.util
import os
import pathlib
import tomllib
from typing import Any

import torch

KINDS = ("plain", "decoder", "encoder")


@dataclasses.dataclass(frozen=True)
class TokenizerFile:
    """The bytes of a SentencePiece model ("sentencepiece") or a tokenizer.json ("json")."""

    format: str
    data: bytes
    add_begin_of_sequence: bool = False
    add_end_of_sequence: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike, **options: bool) -> "TokenizerFile":
        path = pathlib.Path(path)
        formats = {".json": "json", ".model": "sentencepiece"}
        if path.suffix not in formats:
            raise ValueError(f"tokenizer: expected a tokenizer.json or a SentencePiece .model, got {path}")
        return cls(formats[path.suffix], path.read_bytes(), **options)


@dataclasses.dataclass(frozen=True)
class Source:
    """A model to convert. `kind` says which methods it gets: docs/lite.md, "Convert"."""

    module: torch.nn.Module | torch.export.ExportedProgram
    example_inputs: tuple[Any, ...] | None
    dynamic_shapes: Any = None
    kind: str = "plain"
    max_length: int | None = None
    tokenizer: TokenizerFile | None = None
    stop_tokens: list[int] = dataclasses.field(default_factory=list)
    padding_token: int = 0


def read_source(text: str | os.PathLike, *, max_length: int | None = None) -> Source:
    """The model that `text` names: FILE.py:FUNCTION, a .pt2 file, a folder in the published layout, or a recipe."""
    name = os.fspath(text)
    path, _, function = name.rpartition(":")
    if path.endswith(".py"):
        return _call(pathlib.Path(path), function)
    found = pathlib.Path(name)
    if found.suffix == ".pt2":
        return _load_program(found)
    if found.suffix == ".toml" and found.is_file():
        return _read_recipe(found, max_length)
    if found.is_dir():
        from ._transformers import read_folder

        return read_folder(found, max_length=max_length)
    recipe = _find_recipe(name)
    if recipe is not None:
        return _read_recipe(recipe, max_length)
    raise FileNotFoundError(
        f"source: {name!r} is no FILE.py:FUNCTION, .pt2 file, folder or recipe; "
        f"recipes are {', '.join(recipes()) or 'none'}"
    )


def recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in _recipe_directory().glob("*/*.toml"))


def _recipe_directory() -> pathlib.Path:
    """`models` of the repository, or of an installed package."""
    package = pathlib.Path(__file__).resolve().parents[1]
    installed = package / "models"
    return installed if installed.is_dir() else package.parents[1] / "models"


def _find_recipe(name: str) -> pathlib.Path | None:
    return next((path for path in sorted(_recipe_directory().glob("*/*.toml")) if path.stem == name), None)


def _read_recipe(path: pathlib.Path, max_length: int | None) -> Source:
    """[source] package = "name", path = "folder in it"; the package is found, never imported."""
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    source = recipe.get("source", {})
    if not isinstance(source.get("package"), str) or not isinstance(source.get("path"), str):
        raise ValueError(f"source: {path} lacks [source] with package and path")
    spec = importlib.util.find_spec(source["package"])
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"source: {path.stem} needs the package {source['distribution']}: {source['install']}")
    from ._transformers import read_folder

    folder = pathlib.Path(spec.submodule_search_locations[0]) / source["path"]
    return read_folder(folder, max_length=max_length)


def _call(path: pathlib.Path, function: str) -> Source:
    if not path.is_file():
        raise FileNotFoundError(f"source: there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise ValueError(f"source: {path} has no function {function!r}")
    result = found()
    if isinstance(result, Source):
        return result
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise ValueError(
            f"source: {function}() of {path} returned a {type(result).__name__}, expected "
            "(module, example_inputs[, dynamic_shapes]) or a quincunx.lite.Source"
        )
    return Source(*result)


def _load_program(path: pathlib.Path) -> Source:
    if not path.is_file():
        raise FileNotFoundError(f"source: there is no file {path}")
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise ValueError(f"source: torch.export.load cannot read {path}: {error}") from error
    return Source(program, program.example_inputs[0] if program.example_inputs else None)

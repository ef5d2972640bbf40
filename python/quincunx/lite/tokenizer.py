"""Tokenizers in C++ for Python: the same that `qx run` uses, from a SentencePiece model or a tokenizer.json."""

import functools
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Iterable, Iterator

from .._graph import load_core
from .._library import library_directory

__all__ = ["Tokenizer"]


@functools.cache
def load_module(name: str) -> types.ModuleType:
    """The compiled module quincunx.NAME, which shares the types of quincunx._core."""
    load_core()
    full_name = f"quincunx.{name}"
    paths = sorted(library_directory().glob(f"{name}.*.so"))
    if not paths:
        raise RuntimeError(
            f"quincunx: no {name}.*.so in {library_directory()}; build quincunx with QX_BUILD_PYTHON=ON and this Python"
        )
    spec = importlib.util.spec_from_file_location(full_name, paths[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[full_name] = module
    return module


def _read(source: str | os.PathLike | bytes) -> bytes:
    return source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()


class Tokenizer:
    """Text to token ids and back. Use one of the `from_` functions."""

    def __init__(self, compiled):
        self._compiled = compiled

    @classmethod
    def from_sentencepiece(
        cls,
        model: str | os.PathLike | bytes,
        *,
        add_begin_of_sequence: bool = False,
        add_end_of_sequence: bool = False,
    ) -> "Tokenizer":
        """From a SentencePiece model, a path or its bytes."""
        return cls(
            load_module("_generation").load_sentencepiece(
                _read(model),
                add_begin_of_sequence=add_begin_of_sequence,
                add_end_of_sequence=add_end_of_sequence,
            )
        )

    @classmethod
    def from_json(cls, json: str | os.PathLike | bytes) -> "Tokenizer":
        """From a Hugging Face tokenizer.json with a WordPiece or BPE model, a path or its bytes."""
        return cls(load_module("_generation").load_tokenizer_json(_read(json)))

    def encode(self, text: str | bytes, *, special_tokens: bool = True) -> list[int]:
        """Token ids; bytes that are not UTF-8 are read as U+FFFD. `special_tokens`: also those around a text."""
        if not isinstance(text, str | bytes):
            raise TypeError(f"text: expected str or bytes, got {type(text).__name__}")
        data = text if isinstance(text, bytes) else text.encode("utf-8", errors="replace")
        return self._compiled.encode(data, special_tokens=special_tokens)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text; special tokens leave none."""
        return self._compiled.decode([int(token) for token in tokens]).decode("utf-8", errors="replace")

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text piece by piece, as a generation shows it; joined it is decode(tokens)."""
        for piece in self._compiled.stream([int(token) for token in tokens]):
            yield piece.decode("utf-8", errors="replace")

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return self._compiled.vocab_size

    def token_id(self, token: str) -> int | None:
        """The id of exactly this token."""
        found = self._compiled.token_id(token)
        return None if found < 0 else found

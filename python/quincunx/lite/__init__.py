"""Convert a model once, run it without Python: see docs/lite.md."""

from .tokenizer import Tokenizer

__all__ = ["Tokenizer"]

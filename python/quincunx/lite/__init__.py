"""Convert a model once, run it without Python: see docs/lite.md."""

from .convert import ConvertReport, convert
from .generate import generate
from .session import Session
from .source import Source, TokenizerFile
from .tokenizer import Tokenizer

__all__ = ["ConvertReport", "Session", "Source", "Tokenizer", "TokenizerFile", "convert", "generate"]

"""What convert() writes beside the graphs: metadata and tokenizer."""

import json
import os
from typing import Any

from .source import Source
from .tokenizer import load_module


def metadata(source: Source) -> dict[str, Any]:
    """The metadata that the C++ runtime reads (quincunx/lite/generation/text_model.cpp)."""
    found: dict[str, Any] = {"kind": source.kind}
    if source.kind == "plain":
        return found
    found |= {
        "max_length": source.max_length,
        "stop_tokens": list(source.stop_tokens),
        "padding_token": source.padding_token,
    }
    if source.tokenizer is not None:
        found["tokenizer"] = {
            "format": source.tokenizer.format,
            "add_begin_of_sequence": source.tokenizer.add_begin_of_sequence,
            "add_end_of_sequence": source.tokenizer.add_end_of_sequence,
        }
    return found


def write_artifact(output: os.PathLike, methods: list[Any], source: Source) -> None:
    """The .qxm file, whole or not at all."""
    tokenizer = b"" if source.tokenizer is None else source.tokenizer.data
    load_module("_convert").write_qxm(os.fspath(output), methods, json.dumps(metadata(source)), tokenizer)

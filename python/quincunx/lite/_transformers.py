"""Models in the published Hugging Face layout: config.json, model.safetensors and a tokenizer in one folder.

Shape suffixes: B batch, L length, D width, H heads, K width of a head.
"""

import json
import pathlib
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .source import Source, TokenizerFile

DECODERS = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ENCODERS = ("BertModel",)
# They change with the length of the text, which a cache would have to undo.
_UNSTABLE_ROTARY = ("dynamic", "longrope")
_ATTENTION = "quincunx"
DEFAULT_MAX_LENGTH = 2048


def read_folder(folder: pathlib.Path, *, max_length: int | None = None) -> Source:
    """The model of a folder, ready to be converted."""
    config = _read_json(folder / "config.json")
    names = config.get("architectures") or []
    name = names[0] if names else None
    if name in DECODERS:
        return _decoder(folder, name, max_length)
    if name in ENCODERS:
        return _encoder(folder, name, max_length)
    raise NotImplementedError(
        f"source: {folder / 'config.json'} names the architecture {name!r}, expected one of "
        f"{', '.join(DECODERS + ENCODERS)}; write a function that returns (module, example_inputs) and convert that"
    )


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"source: there is no {path}; expected a folder with config.json and model.safetensors")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"source: {path} is not JSON: {error}") from None


def _attend(
    module: nn.Module,
    q_BHLK: torch.Tensor,
    k_BHLK: torch.Tensor,
    v_BHLK: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """One call of scaled_dot_product_attention, without a mask where it is causal."""
    causal = mask is None
    grouped = q_BHLK.shape[1] != k_BHLK.shape[1]
    mixed_BHLK = functional.scaled_dot_product_attention(
        q_BHLK, k_BHLK, v_BHLK, attn_mask=mask, is_causal=causal, scale=scaling, enable_gqa=grouped
    )
    return mixed_BHLK.transpose(1, 2), None


def _mask(attention_mask: torch.Tensor | None = None, **_: Any) -> torch.Tensor | None:
    return None if attention_mask is None else attention_mask[:, None, None, :].to(torch.bool)


def _load(folder: pathlib.Path, name: str) -> nn.Module:
    try:
        import transformers
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError as error:
        raise RuntimeError(
            f"source: a folder needs the package transformers: pip install transformers ({error})"
        ) from None
    transformers.AttentionInterface.register(_ATTENTION, _attend)
    AttentionMaskInterface.register(_ATTENTION, _mask)
    if not list(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"source: there is no *.safetensors in {folder}")
    options = {"add_pooling_layer": False} if name in ENCODERS else {}
    model, info = getattr(transformers, name).from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
    )
    if info["missing_keys"]:
        raise ValueError(f"source: {folder} lacks the weights {sorted(info['missing_keys'])}")
    model.set_attn_implementation(_ATTENTION)
    return model.eval()


class CausalDecoder(nn.Module):
    """Token ids [1, L] to logits [1, L, V]."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


class SentenceEncoder(nn.Module):
    """Token ids and mask [B, L] to one vector a text, as sentence-transformers computes it."""

    def __init__(self, model: nn.Module, *, pooling: str, normalizes: bool):
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.normalizes = normalizes

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden_BLD = self.model(input_ids=tokens, attention_mask=mask).last_hidden_state
        if self.pooling == "cls":
            pooled_BD = hidden_BLD[:, 0]
        else:
            weight_BL1 = mask.unsqueeze(-1).to(hidden_BLD.dtype)
            pooled_BD = (hidden_BLD * weight_BL1).sum(dim=1) / weight_BL1.sum(dim=1).clamp(min=1e-9)
        return functional.normalize(pooled_BD, dim=-1) if self.normalizes else pooled_BD


def _decoder(folder: pathlib.Path, name: str, max_length: int | None) -> Source:
    model = _load(folder, name)
    config = model.config
    rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rotary in _UNSTABLE_ROTARY:
        raise NotImplementedError(f"source: rope_type is {rotary!r}, expected one that is the same for every length")
    if getattr(config, "use_sliding_window", False):
        raise NotImplementedError("source: use_sliding_window is true, expected attention to the whole text")
    length = max_length or min(config.max_position_embeddings, DEFAULT_MAX_LENGTH)
    if length > config.max_position_embeddings:
        raise ValueError(f"max_length: expected at most {config.max_position_embeddings} for this model, got {length}")
    generation = getattr(model, "generation_config", None)
    stop = generation.eos_token_id if generation and generation.eos_token_id is not None else config.eos_token_id
    stop_tokens = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    return Source(
        module=CausalDecoder(model),
        example_inputs=(torch.zeros(1, 7, dtype=torch.int64),),
        kind="decoder",
        max_length=length,
        tokenizer=_tokenizer(folder),
        stop_tokens=stop_tokens,
    )


def _encoder(folder: pathlib.Path, name: str, max_length: int | None) -> Source:
    modules = _read_json(folder / "modules.json") if (folder / "modules.json").exists() else []
    kinds = {entry["type"].rsplit(".", 1)[-1]: entry["path"] for entry in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown:
        raise NotImplementedError(f"source: {folder / 'modules.json'} has {unknown}, expected Pooling and Normalize")
    pooling = _read_json(folder / kinds["Pooling"] / "config.json") if "Pooling" in kinds else {}
    chosen = [key for key, value in pooling.items() if key.startswith("pooling_mode_") and value is True]
    if chosen not in ([], ["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
        raise NotImplementedError(f"source: the pooling is {chosen}, expected mean_tokens or cls_token")
    model = _load(folder, name)
    settings = folder / "sentence_bert_config.json"
    longest = _read_json(settings)["max_seq_length"] if settings.exists() else model.config.max_position_embeddings
    length = max_length or longest
    if length > model.config.max_position_embeddings:
        raise ValueError(
            f"max_length: expected at most {model.config.max_position_embeddings} for this model, got {length}"
        )
    example = torch.zeros(2, 7, dtype=torch.int64)
    return Source(
        module=SentenceEncoder(
            model, pooling="cls" if chosen == ["pooling_mode_cls_token"] else "mean", normalizes="Normalize" in kinds
        ),
        example_inputs=(example, torch.ones_like(example)),
        kind="encoder",
        max_length=length,
        tokenizer=_tokenizer(folder),
        padding_token=model.config.pad_token_id or 0,
    )


def _tokenizer(folder: pathlib.Path) -> TokenizerFile | None:
    if (folder / "tokenizer.json").exists():
        return TokenizerFile.read(folder / "tokenizer.json")
    if not (folder / "tokenizer.model").exists():
        return None
    settings = folder / "tokenizer_config.json"
    config = _read_json(settings) if settings.exists() else {}
    # Llama's own tokenizer begins every text with <s>, unless its settings say otherwise.
    return TokenizerFile.read(
        folder / "tokenizer.model",
        add_begin_of_sequence=bool(config.get("add_bos_token", True)),
        add_end_of_sequence=bool(config.get("add_eos_token", False)),
    )

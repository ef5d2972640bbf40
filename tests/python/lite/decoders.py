"""Small decoders for tests: the tour's, and transformers' Llama with random weights."""

import importlib.util
import pathlib
import sys

import torch

SCALE = 10.0
TOUR_MODEL = pathlib.Path(__file__).resolve().parents[3] / "examples" / "tour" / "model.py"


def tour_module():
    """examples/tour/model.py, whatever sys.path says."""
    name = "tour_model_for_lite"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TOUR_MODEL)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def tour_decoder(vocab_size: int = 64, seed: int = 1):
    tour = tour_module()
    config = tour.ModelConfig(vocab_size=vocab_size, dim=32, num_layers=2, num_heads=2, hidden_dim=48)
    model = tour.Llama(config)
    model.initialize(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(SCALE)  # attention decides then, so that a wrong position changes the tokens
    return model.eval()


def llama_decoder(seed: int = 1):
    """Grouped key-value heads, 3 query heads for one of keys and values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=128,
        eos_token_id=None,
        bos_token_id=None,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def qwen_decoder(version: int, seed: int = 1):
    """Qwen 2 has biases in the projections of attention, Qwen 3 norms of queries and keys."""
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"Qwen{version}Config")(
        vocab_size=64,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        eos_token_id=None,
        bos_token_id=None,
        initializer_range=0.2,
        tie_word_embeddings=version == 3,
    )
    model = getattr(transformers, f"Qwen{version}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)  # biases begin as zeros, norms as ones
    return model


@torch.no_grad()
def greedy(logits_of, prompt: list[int], count: int) -> list[int]:
    """Each time the most likely token after the whole text, in float32 eager PyTorch."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits_of(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def train_briefly(model: torch.nn.Module, data: torch.Tensor, steps: int) -> None:
    """A few steps on the tokens of a text, so that its answers are no noise."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.train()
    for _ in range(steps):
        starts = torch.randint(0, len(data) - 33, (8,)).tolist()
        batch = torch.stack([data[start : start + 33] for start in starts])
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

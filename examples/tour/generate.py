"""Text from the trained model, in plain PyTorch and one process."""

import pathlib

import checkpoint
import model as llama
import sentencepiece
import torch

PROMPTS = (
    "The :mod:`",
    ".. function:: open(",
    "Return a new ",
)


def load(checkpoints: pathlib.Path, config: llama.ModelConfig) -> llama.Llama:
    # One sequence at a time gives a second thread nothing to do but wait.
    torch.set_num_threads(1)
    model = llama.Llama(config)
    checkpoint.load_model(checkpoints, model)
    return model.eval()


@torch.no_grad()
def continuation(
    model: llama.Llama, prompt: list[int], *, num_tokens: int, temperature: float, generator: torch.Generator
) -> list[int]:
    """Token ids after the prompt. Temperature 0 takes the most likely token each time."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        logits_V = model(torch.tensor([tokens]))[0, -1]
        if temperature == 0.0:
            tokens.append(int(logits_V.argmax()))
        else:
            probabilities_V = torch.softmax(logits_V / temperature, dim=-1)
            tokens.append(int(torch.multinomial(probabilities_V, 1, generator=generator)))
    return tokens[len(prompt) :]


def samples(
    model: llama.Llama, tokenizer: sentencepiece.SentencePieceProcessor, *, num_tokens: int, seed: int
) -> list[dict[str, str]]:
    """One greedy continuation and one at temperature 0.7 of each prompt."""
    generator = torch.Generator().manual_seed(seed)
    result = []
    for prompt in PROMPTS:
        for temperature in (0.0, 0.7):
            tokens = continuation(
                model, tokenizer.encode(prompt), num_tokens=num_tokens, temperature=temperature, generator=generator
            )
            how = "greedy" if temperature == 0.0 else f"temperature {temperature}"
            result.append({"prompt": prompt, "how": how, "text": tokenizer.decode(tokens).rstrip()})
    return result

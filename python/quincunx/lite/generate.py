"""generate(): tokens after a prompt from a converted decoder, by the loop that `qx run` uses."""

from collections.abc import Callable, Sequence
from typing import Any

from .session import Session
from .tokenizer import load_module

__all__ = ["generate"]


def generate(
    session: Session,
    prompt: Sequence[int],
    *,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop_tokens: Sequence[int] = (),
    timeout_s: float | None = None,
    on_token: Callable[[int], bool | None] | None = None,
) -> Any:
    """The generation (tokens, stop_reason, num_prompt_tokens, prefill_ns, decode_ns) after a prompt of token ids.

    Temperature 0 takes the most likely token; otherwise tokens are drawn from softmax(logits / temperature) of the
    `top_k` most likely ones (0: all) and of the fewest that are `top_p` likely together. The same seed gives the same
    tokens. A generation ends before a stop token, after `max_tokens`, where the caches are full, or when
    `on_token(token)`, called for each, returns False. TimeoutError after `timeout_s`.
    """
    if not isinstance(session, Session):
        raise TypeError(f"session: expected a quincunx.lite.Session, got {type(session).__name__}")
    with session.exclusive() as compiled:
        return load_module("_generation").generate(
            compiled,
            [int(token) for token in prompt],
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_tokens=[int(token) for token in stop_tokens],
            timeout_s=timeout_s,
            on_token=on_token,
        )

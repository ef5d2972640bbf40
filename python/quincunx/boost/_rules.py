"""The rules by which a block of queries chooses blocks of keys, and the one argument that each of them takes."""

from ._arguments import choice, integers

_ARGUMENTS = {"topk": "sparsity", "cdf": "cdf_threshold", "window": "window"}


def rule_amount(rule: str, **amounts) -> float | tuple[int, ...]:
    """The one of sparsity, cdf_threshold and window that belongs to the rule; the others must be absent."""
    choice("rule", rule, tuple(_ARGUMENTS))
    for name, amount in amounts.items():
        if (amount is None) != (name != _ARGUMENTS[rule]):
            expected = "none" if amount is not None else "a value"
            raise ValueError(f"{name}: expected {expected} with rule {rule!r}, got {amount!r}")
    amount = amounts[_ARGUMENTS[rule]]
    if rule == "window":
        return integers("window", amount, 3, 0, "tiles to each side in frames, height and width")
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 <= amount <= 1:
        raise ValueError(f"{_ARGUMENTS[rule]}: expected a number from 0 to 1, got {amount!r}")
    return float(amount)

"""Activation memory: regions whose results are saved, computed again or swapped out, as a policy says."""

from quincunx.activation.policy import Action, Policy, Rule, swap_arena
from quincunx.activation.regions import checkpoint, checkpoint_wrapper, counters

__all__ = ["Action", "Policy", "Rule", "checkpoint", "checkpoint_wrapper", "counters", "swap_arena"]

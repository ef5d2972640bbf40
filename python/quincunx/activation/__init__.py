"""Activation memory: regions whose results are saved, computed again or swapped out, as a policy says."""

from quincunx.activation.policy import Action, Policy, Rule, swap_arena
from quincunx.activation.regions import checkpoint, checkpoint_wrapper, checkpointed, counters, default_policy
from quincunx.activation.timeline import Timeline, TimelineEvent, record_timeline
from quincunx.activation.torch_contexts import context_fn

__all__ = [
    "Action",
    "Policy",
    "Rule",
    "Timeline",
    "TimelineEvent",
    "checkpoint",
    "checkpoint_wrapper",
    "checkpointed",
    "context_fn",
    "counters",
    "default_policy",
    "record_timeline",
    "swap_arena",
]

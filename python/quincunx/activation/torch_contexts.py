"""Policies for regions that torch.utils.checkpoint runs."""

import types
from collections.abc import Callable, Mapping
from typing import Any

from quincunx.activation import _extension
from quincunx.activation.policy import Policy
from quincunx.activation.regions import as_policy, check_unchanged


class _Forward:
    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __enter__(self) -> None:
        self._frame.enter()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        try:
            if kind is None:
                self._frame.finish_forward()
        finally:
            self._frame.leave()


class _Replay:
    """May be entered again, as torch does for a graph that is retained."""

    def __init__(self, frame: Any, policy: Policy) -> None:
        self._frame, self._policy = frame, policy

    def __enter__(self) -> None:
        self._policy.warn_of_unmatched()
        check_unchanged(self._frame, lambda tensor: "a tensor from outside of the region")
        self._frame.begin_replay()
        self._frame.enter()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: types.TracebackType | None) -> None:
        self._frame.leave()
        self._frame.end_replay()


def context_fn(policy: Policy | Mapping | Callable) -> Callable[[], tuple[_Forward, _Replay]]:
    """What torch.utils.checkpoint.checkpoint(..., use_reentrant=False, context_fn=...) takes.

    The replay is torch's, which decides when it runs and when it stops; what is kept in between is `policy`'s matter.
    """
    checked = as_policy(policy)
    table = checked.table(None)

    def contexts() -> tuple[_Forward, _Replay]:
        frame = _extension.load().Frame(table)
        return _Forward(frame), _Replay(frame, checked)

    return contexts

"""Changes: planned, made all or none, undone by identity."""

import pytest
import torch
from quincunx.boost.changes import Changes


class Owner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = object()
        self.child = torch.nn.Identity()


def test_nothing_changes_before_make_and_everything_is_back_after_undo():
    owner, changes = Owner(), Changes()
    plain, child, new = owner.plain, owner.child, torch.nn.ReLU()
    calls = []
    changes.replace(owner, "plain", 1, "plain")
    changes.replace(owner, "child", new, "child")
    changes.replace(owner, "forward", lambda x: x + 1, "forward")
    changes.before_forward(owner, lambda module, args, kwargs: calls.append(args))
    assert owner.plain is plain and owner.child is child
    changes.make()
    assert owner.plain == 1 and owner.child is new and owner(2) == 3 and calls == [(2,)]
    changes.undo()
    assert owner.plain is plain and owner.child is child and "forward" not in vars(owner)
    assert not owner._forward_pre_hooks


def test_a_change_that_fails_undoes_those_before_it():
    class Stubborn:
        __slots__ = ("__weakref__", "__dict__")

        def __setattr__(self, name, value):
            raise PermissionError(name)

    owner, changes = Owner(), Changes()
    plain = owner.plain
    changes.replace(owner, "plain", 1, "plain")
    changes.replace(Stubborn(), "part", 1, "part")
    with pytest.raises(PermissionError, match="part"):
        changes.make()
    assert owner.plain is plain
    again = Changes()
    again.replace(owner, "plain", 2, "plain")
    again.make()
    again.undo()


def test_two_plans_for_one_attribute_exclude_each_other():
    owner, first, second = Owner(), Changes(), Changes()
    for value, changes in ((1, first), (2, second)):
        changes.replace(owner, "plain", value, "owner.plain")
    first.make()
    with pytest.raises(ValueError, match=r"pipe: is boosted already \(owner.plain\)"):
        second.make()
    first.undo()
    second.make()
    assert owner.plain == 2
    second.undo()

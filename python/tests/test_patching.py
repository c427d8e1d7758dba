"""Patched entries are restored in whatever order the patches are undone."""
import copy
import itertools
import pickle
import unittest

from perjoule import patching
from perjoule.patching import Replacement, as_hook, copy_unpatched


class Thing:
    """With the attributes of a torch module that keep hooks."""

    def __init__(self):
        self._forward_hooks, self._forward_pre_hooks = {}, {}
        self._forward_pre_hooks_with_kwargs = {}

    def forward(self):
        return self


class WithState(Thing):
    def __getstate__(self):
        return {"only": 1}


class Replacing(unittest.TestCase):
    def test_any_order_restores_what_was_there(self):
        for before in ({}, {"f": "original"}):
            for order in itertools.permutations(range(3)):
                owner = dict(before)
                replaced = [Replacement(owner, "f", i) for i in range(3)]
                left = set(range(3))
                for i in order:
                    replaced[i].undo()
                    left.discard(i)
                    self.assertEqual(owner, {"f": max(left)} if left else before, order)
        self.assertEqual(patching._replaced, {})

    def test_what_a_stranger_replaced_stays(self):
        owner = {"f": "original"}
        ours = Replacement(owner, "f", "ours")
        owner["f"] = "a stranger's"
        ours.undo()
        self.assertEqual(owner, {"f": "a stranger's"})

    def test_keys_and_dictionaries_are_apart(self):
        one, other = {"f": 1, "g": 2}, {"f": 1}
        replaced = [Replacement(one, "f", "x"), Replacement(one, "g", "y"), Replacement(other, "f", "z")]
        for each in replaced:
            each.undo()
        self.assertEqual((one, other), ({"f": 1, "g": 2}, {"f": 1}))

    def test_copies_and_pickles_leave_the_patches_behind(self):
        for kind in (Thing, WithState):
            thing = kind()
            patches = [Replacement(thing.__dict__, "forward", lambda: "patched") for _ in range(2)]
            patches += [copy_unpatched(thing) for _ in range(2)]
            thing._forward_hooks[1], thing._forward_hooks[2] = as_hook(lambda: None), print
            thing._forward_pre_hooks[3] = as_hook(lambda: None)
            thing._forward_pre_hooks_with_kwargs[3] = True
            for made in (copy.deepcopy(thing), copy.copy(thing), pickle.loads(pickle.dumps(thing))):
                if kind is WithState:
                    self.assertEqual(vars(made), {"only": 1})
                    continue
                self.assertIs(made.forward(), made)
                self.assertEqual(vars(made), {"_forward_hooks": {2: print}, "_forward_pre_hooks": {},
                                              "_forward_pre_hooks_with_kwargs": {}})
            self.assertEqual((thing.forward(), len(thing._forward_hooks)), ("patched", 2))
            for patch in patches:
                patch.undo()
            self.assertNotIn("__reduce_ex__", vars(thing))

    def test_a_copy_keeps_what_others_patched(self):
        thing = Thing()
        thing.forward = "theirs"
        ours = [Replacement(thing.__dict__, "forward", "ours"), copy_unpatched(thing)]
        self.assertEqual(copy.copy(thing).forward, "theirs")
        thing.forward = "over ours"
        self.assertEqual(copy.copy(thing).forward, "over ours")
        for patch in ours:
            patch.undo()


if __name__ == "__main__":
    unittest.main()

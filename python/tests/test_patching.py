"""Replaced entries are put back in whatever order their replacers leave."""
import itertools
import unittest

from perjoule import patching
from perjoule.patching import Replacement


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


if __name__ == "__main__":
    unittest.main()

"""Prefill, decode and token counts from query lengths and caches alone."""
import gc
import threading
import unittest

from perjoule.loops import LIMIT, Texts, cache_given, cache_returned, cached_in
from perjoule.statistics import Schedule
from perjoule.steps import Request, count_until_end


def follow(request, passes):
    """(phase, tokens before) of each pass (cached, query)."""
    return [(request.begin_pass(*each), request.generated) for each in passes]


class Phases(unittest.TestCase):
    def test_a_prompt_then_one_token_at_a_time(self):
        self.assertEqual(follow(Request(8), [(0, 8), (8, 1), (9, 1)]), [("prefill", 0), ("decode", 1), ("decode", 2)])

    def test_a_prompt_of_one_token(self):
        self.assertEqual(follow(Request(1), [(0, 1), (1, 1)]), [("prefill", 0), ("decode", 1)])

    def test_the_first_pass_tells_the_prompt(self):
        self.assertEqual(follow(Request(), [(0, 8), (8, 1)]), [("prefill", 0), ("decode", 1)])

    def test_a_prompt_in_chunks(self):
        self.assertEqual(follow(Request(8), [(0, 3), (3, 3), (6, 2), (8, 1)]),
                         [("prefill", 0)] * 3 + [("decode", 1)])

    def test_a_prompt_that_is_cached_but_for_its_end(self):
        self.assertEqual(follow(Request(8), [(7, 1), (8, 1)]), [("prefill", 0), ("decode", 1)])

    def test_without_a_cache_the_text_is_read_again(self):
        self.assertEqual(follow(Request(3), [(0, 3), (0, 4), (0, 5)]), [("prefill", 0), ("decode", 1), ("decode", 2)])

    def test_guesses_that_are_accepted_are_several_tokens(self):
        # prompt of 8, then 5 draft tokens per pass; 3 of 5 accepted, then all 5
        self.assertEqual(follow(Request(8), [(0, 13), (11, 6), (17, 1)]),
                         [("prefill", 0), ("decode", 4), ("decode", 10)])

    def test_what_a_request_yielded_and_whether_it_guesses(self):
        request = Request(8)
        self.assertEqual(request.yielded, 0)
        follow(request, [(0, 3), (3, 5), (8, 1)])
        self.assertEqual((request.yielded, request.guesses), (2, False))
        follow(request, [(9, 4)])
        self.assertTrue(request.guesses)
        again = Request(3)
        follow(again, [(0, 3), (0, 4)])
        self.assertEqual((again.yielded, again.guesses), (2, False))

    def test_positions_go_on_over_requests(self):
        request = Request(4, first_position=10)
        follow(request, [(0, 4), (4, 1)])
        self.assertEqual(request.position, 11)

    def test_a_loop_reads_more_of_its_prompt(self):
        request = Request()
        self.assertEqual(follow(request, [(0, 3), (3, 4), (7, 1), (8, 1)]),
                         [("prefill", 0), ("prefill", 0), ("decode", 1), ("decode", 2)])
        self.assertEqual((request.prompt, request.added, request.yielded), (7, 4, 3))

    def test_another_turn_of_a_loop_begins_with_the_last_token(self):
        request = Request()
        self.assertEqual(follow(request, [(0, 7), (7, 1), (8, 4), (12, 1)]),
                         [("prefill", 0), ("decode", 1), ("prefill", 2), ("decode", 3)])
        self.assertEqual((request.prompt, request.added, request.yielded), (10, 3, 4))

    def test_a_cache_that_is_cut_short_tells_drafts(self):
        request = Request()
        self.assertEqual(follow(request, [(0, 7), (7, 5), (9, 5), (14, 5)])[2:], [("decode", 3), ("decode", 8)])
        self.assertEqual((request.prompt, request.added, request.guesses), (7, 0, True))

    def test_which_parts_of_a_prompt_are_one_step(self):
        request = Request()
        follow(request, [(0, 3)])
        self.assertTrue(request.goes_on(3, 4))
        self.assertFalse(request.goes_on(3, 1))
        follow(request, [(3, 1)])
        self.assertFalse(request.goes_on(4, 4))
        known = Request(8)
        follow(known, [(0, 3)])
        self.assertTrue(known.goes_on(3, 5))
        follow(known, [(3, 5)])
        self.assertFalse(known.goes_on(8, 1))

    def test_a_pass_of_another_text_reads_less_than_the_last(self):
        request = Request(5)
        follow(request, [(0, 5)])
        self.assertTrue(request.is_of_another_text(0, 1))
        self.assertFalse(request.is_of_another_text(0, 6))
        follow(request, [(5, 1)])
        self.assertFalse(request.is_of_another_text(0, 1))


class Cache:
    """Something that a weak reference can be made to."""


class Counting(Cache):
    """A cache as transformers has them, by whatever name it is handed on."""

    def get_seq_length(self):
        return 7


class Caches(unittest.TestCase):
    def test_by_every_name_that_is_known(self):
        for name in ("cache", "past_key_values", "cache_params", "state"):
            cache = Cache()
            self.assertIs(cache_given((), {"use_cache": True, name: cache}), cache)
            self.assertIs(cache_returned({"logits": 1, name: cache}), cache)
            self.assertIs(cache_returned(type("Output", (), {name: cache})()), cache)

    def test_by_what_it_can_tell(self):
        cache = Counting()
        self.assertIs(cache_given((1, None, cache), {}), cache)
        self.assertIs(cache_given((1,), {"memory": cache}), cache)
        self.assertIs(cache_returned((1, cache)), cache)
        self.assertIs(cache_returned({"logits": 1, "memory": cache}), cache)
        self.assertEqual(cached_in(cache), 7)

    def test_none(self):
        self.assertIsNone(cache_given((1, "text"), {"past_key_values": None}))
        for out in (1, (1, 2), {"logits": 1}, None):
            self.assertIsNone(cache_returned(out))

    def test_something_else_of_that_name_has_no_positions(self):
        for other in ({}, {"a": 1}, True, [], 3):
            self.assertEqual(cached_in(other), 0)


class TextsOfLoops(unittest.TestCase):
    def setUp(self):
        self.texts = Texts()

    def begin(self, cache, query, cached=0, ids=None):
        text = self.texts.begin(Request())
        self.texts.read(text, None if not cached else cache, cached, query, ids)
        self.texts.returned(text, cache)
        return text

    def test_by_the_cache(self):
        caches = Cache(), Cache()
        first, second = self.begin(caches[0], 7), self.begin(caches[1], 7)
        self.assertIs(self.texts.find(caches[0], 7, 1, None), first)
        self.assertIs(self.texts.find(caches[1], 7, 1, None), second)
        self.assertIsNone(self.texts.find(Cache(), 7, 1, None))  # a copy: a branch

    def test_a_cache_that_was_emptied_begins_another_text(self):
        cache = Cache()
        first = self.begin(cache, 7)
        self.assertIsNone(self.texts.find(cache, 0, 5, None))
        second = self.begin(cache, 5)
        self.texts.read(second, cache, 5, 1, None)
        self.assertIs(self.texts.find(cache, 6, 1, None), second)
        self.assertIsNone(first.cache)

    def test_a_cache_that_can_only_be_told_by_its_length(self):
        cache = ((0, 0),)
        text = self.begin(cache, 7)
        self.assertIs(self.texts.find(((0, 1),), 7, 1, None), text)
        self.assertIsNone(self.texts.find(((0, 1),), 9, 1, None))
        found = []
        thread = threading.Thread(target=lambda: found.append(self.texts.find(((0, 1),), 7, 1, None)))
        thread.start()
        thread.join()
        self.assertEqual(found, [None])

    def test_a_cache_that_is_gone(self):
        text = self.begin(Cache(), 7)
        gc.collect()
        self.assertIs(self.texts.find(Cache(), 7, 1, None), text)  # made anew for each pass
        self.assertIsNone(self.texts.find(Cache(), 5, 1, None))

    def test_only_so_many_are_remembered(self):
        for _ in range(2 * LIMIT):
            self.begin(None, 3)
        self.assertEqual(len(self.texts._texts), LIMIT)


class Counts(unittest.TestCase):
    def test_the_end_token_counts_and_padding_does_not(self):
        self.assertEqual(count_until_end([5, 6, 1, 0, 0], {1}), 3)
        self.assertEqual(count_until_end([5, 6, 0, 0], {1}, pad=0), 2)
        self.assertEqual(count_until_end([5, 6], {1}), 2)
        self.assertEqual(count_until_end([], {1}, pad=0), 0)


class Looks(unittest.TestCase):
    def test_every_kth_decode_step(self):
        schedule = Schedule(3)
        self.assertEqual([schedule.wants("decode") for _ in range(6)], [False, False, True] * 2)
        self.assertFalse(schedule.wants("prefill"))
        self.assertTrue(Schedule(1).wants("prefill"))
        self.assertFalse(any(Schedule(0).wants("decode") for _ in range(9)))

    def test_by_cost_one_step_is_tried(self):
        for spent, step, every in ((3, 10_000, 1), (40, 10_040, 10), (4000, 5000, 0)):
            schedule = Schedule(None)
            self.assertTrue(schedule.wants("decode"))  # whole, as steps 10, 100, ... are
            self.assertIsNone(schedule.limit)
            self.assertTrue(schedule.wants("decode"))
            self.assertEqual(schedule.limit, Schedule.TRIED)
            schedule.took(spent, step, 100)
            self.assertEqual(schedule.every, every)
            schedule.wants("decode")
            self.assertIsNone(schedule.limit)


if __name__ == "__main__":
    unittest.main()

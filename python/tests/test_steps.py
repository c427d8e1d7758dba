"""Prefill, decode and counts of tokens, from query lengths and caches alone."""
import unittest

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
        # prompt of 8 and 5 guesses at once; 3 of 5 accepted, then all of 5
        self.assertEqual(follow(Request(8), [(0, 13), (11, 6), (17, 1)]),
                         [("prefill", 0), ("decode", 4), ("decode", 10)])

    def test_positions_go_on_over_requests(self):
        request = Request(4, first_position=10)
        follow(request, [(0, 4), (4, 1)])
        self.assertEqual(request.position, 11)

    def test_a_loop_that_starts_anew(self):
        request = Request()
        follow(request, [(0, 4), (4, 1)])
        self.assertTrue(request.starts_anew(0, 6))
        self.assertFalse(request.starts_anew(5, 1))
        request = Request()
        follow(request, [(0, 4)])
        self.assertFalse(request.starts_anew(0, 5))
        self.assertTrue(request.starts_anew(0, 4))


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
            self.assertEqual([schedule.wants("decode") for _ in range(2)], [False, True])
            self.assertEqual(schedule.limit, Schedule.TRIED)
            schedule.took(spent, step, 100)
            self.assertEqual(schedule.every, every)
            schedule.wants("decode")
            self.assertIsNone(schedule.limit)


if __name__ == "__main__":
    unittest.main()

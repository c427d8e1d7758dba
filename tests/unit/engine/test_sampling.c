/* Sampling against the definitions of its filters, and stop strings with text split anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../assertions.h"
#include "engine/generation/reply.h"
#include "engine/generation/sampling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB = 50, DRAWS = 40000 };

static float logits_of(int i)
{
    return (float)(3 * sin(i * 1.7) + 0.02 * i);
}

/* How often each id is drawn. */
static void draw_many(const pj_sampling *settings, uint32_t vocab, int counts[VOCAB])
{
    pj_error err = {0};
    pj_sampler sampler;
    assert_int_equal(pj_sampler_init(&sampler, settings, vocab, &err), PJ_OK);
    memset(counts, 0, VOCAB * sizeof *counts);
    for (int n = 0; n < DRAWS; n++) {
        float logits[VOCAB];
        for (int i = 0; i < VOCAB; i++) logits[i] = logits_of(i);
        int32_t id = pj_sampler_draw(&sampler, logits);
        assert_in_range(id, 0, vocab - 1);
        counts[id]++;
    }
    pj_sampler_fini(&sampler);
}

/* Locally typical sampling as in the reference: tokens sorted by |-ln p - entropy| are kept until
 * their mass reaches the threshold, including all ties with the last one. */
static void keep_typical(double p[VOCAB], double share)
{
    double sum = 0, entropy = 0, limit = -1;
    for (int i = 0; i < VOCAB; i++) sum += p[i];
    for (int i = 0; i < VOCAB; i++)
        if (p[i] > 0) entropy -= p[i] / sum * log(p[i] / sum);
    for (int i = 0; i < VOCAB; i++) {
        double distance = fabs(-log(p[i] / sum) - entropy), nearer = 0;
        for (int k = 0; k < VOCAB; k++)
            if (p[k] > 0 && fabs(-log(p[k] / sum) - entropy) < distance) nearer += p[k] / sum;
        if (p[i] > 0 && nearer < share && distance > limit) limit = distance;
    }
    for (int i = 0; i < VOCAB; i++)
        if (p[i] > 0 && fabs(-log(p[i] / sum) - entropy) > limit) p[i] = 0;
}

/* Reference probabilities: temperature, then top-k, top-p, min-p and typical-p, each applied to the
 * remaining tokens. */
static void expected(const pj_sampling *s, double p[VOCAB])
{
    int order[VOCAB];
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        order[i] = i;
        sum += p[i] = exp((double)logits_of(i) / s->temperature);
    }
    for (int i = 0; i < VOCAB; i++)
        for (int k = i + 1; k < VOCAB; k++)
            if (p[order[k]] > p[order[i]]) {
                int swapped = order[i];
                order[i] = order[k];
                order[k] = swapped;
            }
    int left = s->top_k && s->top_k < VOCAB ? (int)s->top_k : VOCAB, kept = 0;
    double total = 0, mass = 0;
    for (int i = 0; i < left; i++) total += p[order[i]];
    for (; kept < left && (kept == 0 || mass < s->top_p * total); kept++) mass += p[order[kept]];
    while (kept > 1 && p[order[kept - 1]] < s->min_p * p[order[0]]) kept--;
    for (int i = kept; i < VOCAB; i++) p[order[i]] = 0;
    if (s->typical_p > 0) keep_typical(p, s->typical_p);
    sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += p[i];
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

static void distributions(void **state)
{
    static const pj_sampling rows[] = {
        {1, 0, 1, 0, 1, 1},
        {0.7, 0, 1, 0, 1, 2},
        {2, 0, 1, 0, 1, 3},
        {1, 5, 1, 0, 1, 4},
        {1, 0, 0.6, 0, 1, 5},
        {1, 0, 1, 0.2, 1, 6},
        {1, 10, 0.8, 0, 1, 7},
        {1.3, 20, 0.9, 0.1, 1, 8},
        {1, 1, 1, 0, 1, 9},
        {1, 0, 1e-6, 0, 1, 10},
        {1, 99, 1, 1, 1, 11},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 12, .typical_p = 0.5},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 13, .typical_p = 0.95},
        {.temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .seed = 14, .typical_p = 0.001},
        {1, 12, 0.9, 0.01, 1, 15, .typical_p = 0.7},
        {.temperature = 0.8, .top_p = 1, .repetition_penalty = 1, .seed = 16, .typical_p = 1},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int counts[VOCAB];
        double p[VOCAB];
        draw_many(&rows[r], VOCAB, counts);
        expected(&rows[r], p);
        for (int i = 0; i < VOCAB; i++) {
            double sd = sqrt(DRAWS * p[i] * (1 - p[i]));
            if (fabs(counts[i] - DRAWS * p[i]) > 5 * sd + 1e-9)
                fail_msg("row %zu: id %d was drawn %d times, not about %g", r, i, counts[i],
                         DRAWS * p[i]);
        }
    }
}

static void greedy_takes_the_first_of_the_largest(void **state)
{
    pj_error err = {0};
    pj_sampler sampler;
    pj_sampling greedy = PJ_SAMPLING_GREEDY;
    float logits[6] = {1, 7, NAN, 7, -INFINITY, 9};
    assert_int_equal(pj_sampler_init(&sampler, &greedy, 5, &err), PJ_OK);
    assert_int_equal(pj_sampler_draw(&sampler, logits), 1); /* 5 is not in the vocabulary */
    pj_sampler_fini(&sampler);
}

static void ids_beyond_the_vocabulary_are_never_drawn(void **state)
{
    int counts[VOCAB];
    pj_sampling hot = {50, 0, 1, 0, 1, 12};
    draw_many(&hot, 7, counts);
    for (int i = 0; i < 7; i++) assert_that(counts[i], >, 0);
}

static void same_seed_same_ids(void **state)
{
    pj_error err = {0};
    int32_t first[100];
    int different = 0;
    for (uint64_t run = 0; run < 3; run++) {
        pj_sampler sampler;
        pj_sampling settings = {1, 0, 1, 0, 1, run == 2 ? 6 : 5};
        assert_int_equal(pj_sampler_init(&sampler, &settings, VOCAB, &err), PJ_OK);
        for (int n = 0; n < 100; n++) {
            float logits[VOCAB];
            for (int i = 0; i < VOCAB; i++) logits[i] = logits_of(i + n);
            int32_t id = pj_sampler_draw(&sampler, logits);
            if (run == 0) first[n] = id;
            if (run == 1) assert_int_equal(id, first[n]);
            if (run == 2) different += id != first[n];
        }
        pj_sampler_fini(&sampler);
    }
    assert_that(different, >, 0);
}

static void penalty(void **state)
{
    pj_error err = {0};
    pj_sampler sampler;
    pj_sampling settings = {0, 0, 1, 0, 2, 0};
    float logits[4] = {4, 3, -1, -1.5f};
    assert_int_equal(pj_sampler_init(&sampler, &settings, 4, &err), PJ_OK);
    pj_sampler_accept(&sampler, 0, false);
    pj_sampler_accept(&sampler, 2, true);
    pj_sampler_accept(&sampler, 100, true); /* unknown ids are ignored */
    assert_int_equal(pj_sampler_draw(&sampler, logits), 1);
    assert_that(logits[0], ==, 2);
    assert_that(logits[1], ==, 3);
    assert_that(logits[2], ==, -2);
    assert_that(logits[3], ==, -1.5f);
    pj_sampler_fini(&sampler);
}

/* Frequency (per occurrence) and presence (once) penalties count generated tokens only, not the
 * prompt. */
static void frequency_and_presence(void **state)
{
    pj_error err = {0};
    pj_sampler sampler;
    pj_sampling settings = PJ_SAMPLING_GREEDY;
    settings.frequency_penalty = 0.5;
    settings.presence_penalty = -1.25;
    float logits[5] = {4, 3, -1, 2, 0};
    assert_int_equal(pj_sampler_init(&sampler, &settings, 4, &err), PJ_OK);
    pj_sampler_accept(&sampler, 0, false);
    for (int i = 0; i < 3; i++) pj_sampler_accept(&sampler, 1, true);
    pj_sampler_accept(&sampler, 2, true);
    pj_sampler_accept(&sampler, 4, true); /* beyond the vocabulary */
    assert_int_equal(pj_sampler_draw(&sampler, logits), 0);
    assert_that(logits[0], ==, 4);
    assert_that(logits[1], ==, 2.75f);
    assert_that(logits[2], ==, -0.25f);
    assert_that(logits[3], ==, 2);
    assert_that(logits[4], ==, 0);
    pj_sampler_fini(&sampler);
}

/* Biases are applied before the penalties, and for greedy decoding too. */
static void logit_bias(void **state)
{
    pj_error err = {0};
    pj_sampler sampler;
    pj_sampling settings = PJ_SAMPLING_GREEDY;
    settings.repetition_penalty = 2;
    settings.bias_count = 3;
    settings.biases[0] = (pj_logit_bias){0, -100};
    settings.biases[1] = (pj_logit_bias){2, 5};
    settings.biases[2] = (pj_logit_bias){2, 1}; /* biases of one token accumulate */
    float logits[4] = {4, 3, -1, 2.25f};
    assert_int_equal(pj_sampler_init(&sampler, &settings, 4, &err), PJ_OK);
    pj_sampler_accept(&sampler, 2, false);
    assert_int_equal(pj_sampler_draw(&sampler, logits), 1);
    assert_that(logits[0], ==, -96);
    assert_that(logits[2], ==, 2.5f);
    pj_sampler_fini(&sampler);
    assert_int_equal(pj_sampler_init(&sampler, &settings, 2, &err), PJ_E_INVALID);
    settings.biases[0].bias = NAN;
    assert_int_equal(pj_sampler_init(&sampler, &settings, 4, &err), PJ_E_INVALID);
}

static void settings_are_checked(void **state)
{
    static const pj_sampling wrong[] = {
        {-1, 0, 1, 0, 1, 0},
        {NAN, 0, 1, 0, 1, 0},
        {1, 0, 0, 0, 1, 0},
        {1, 0, 1.5, 0, 1, 0},
        {1, 0, 1, -1, 1, 0},
        {1, 0, 1, 2, 1, 0},
        {1, 0, 1, 0, 0, 0},
        {1, 0, 1, 0, NAN, 0},
        {1, 0, NAN, 0, 1, 0},
        {1, 0, 1, 0, 1, 0, .typical_p = -0.1},
        {1, 0, 1, 0, 1, 0, .typical_p = NAN},
        {1, 0, 1, 0, 1, 0, .frequency_penalty = 2.5},
        {1, 0, 1, 0, 1, 0, .presence_penalty = NAN},
        {1, 0, 1, 0, 1, 0, .bias_count = 1, .biases = {{-1, 0}}},
        {1, 0, 1, 0, 1, 0, .bias_count = 1, .biases = {{1, 101}}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pj_error err = {0};
        assert_int_equal(pj_sampling_check(&wrong[i], &err), PJ_E_INVALID);
        assert_that(err.text[0], !=, 0);
    }
    assert_int_equal(pj_sampling_check(&PJ_SAMPLING_GREEDY, NULL), PJ_OK);
}

/* ---- stop strings ------------------------------------------------------------------------- */

/* Feeds the text in pieces of `step` bytes: the output, and whether it stopped. */
static bool cut_and_join(const char *text, const char *const *stop, size_t step, char *out)
{
    pj_reply reply;
    bool stopped = false;
    size_t length = strlen(text), bytes;
    pj_reply_init(&reply, stop, 1 << 20);
    out[0] = 0;
    for (size_t at = 0; at < length && !stopped; at += step) {
        pj_buffer_append(&reply.text, text + at, length - at < step ? length - at : step);
        stopped = pj_reply_check(&reply);
        const char *piece = pj_reply_take(&reply, stopped, &bytes);
        strncat(out, piece, bytes);
    }
    const char *piece = pj_reply_take(&reply, true, &bytes);
    strncat(out, piece, bytes);
    pj_reply_fini(&reply);
    return stopped;
}

static void stop_strings(void **state)
{
    static const struct {
        const char *text, *stop[3], *want;
        bool stopped;
    } rows[] = {
        {"hello world", {NULL}, "hello world", false},
        {"hello world", {"wor", NULL}, "hello ", true},
        {"hello world", {"xyz", NULL}, "hello world", false},
        {"hello world", {"worldly", NULL}, "hello world", false},
        {"aaab", {"aab", NULL}, "a", true},
        {"abababc", {"ababc", NULL}, "ab", true},
        {"one\nUser: two", {"\nUser:", "two"}, "one", true},
        {"one two", {"two", "one two"}, "", true},
        {"x", {"", NULL}, "x", false},
        {"stop", {"stop", NULL}, "", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t step = 1; step < 16; step++) {
            char out[64];
            bool stopped = cut_and_join(rows[i].text, rows[i].stop, step, out);
            assert_int_equal(stopped, rows[i].stopped);
            assert_string_equal(out, rows[i].want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_never_drawn),
        cmocka_unit_test(same_seed_same_ids),
        cmocka_unit_test(penalty),
        cmocka_unit_test(frequency_and_presence),
        cmocka_unit_test(logit_bias),
        cmocka_unit_test(settings_are_checked),
        cmocka_unit_test(stop_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

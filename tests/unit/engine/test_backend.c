/* The compute backend interface: a second backend, which forwards to the CPU and counts, gets every
 * pass of a generation; one of another version is rejected. */
#include "engine/forward/backend.h"
#include "engine/generation/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PLAIN (pj_backends[0])

enum { NEW_TOKENS = 5 };

static struct {
    int opened, closed, prefills, decodes;
    uint64_t tokens;
} seen;

static pj_status counting_open(pj_compute *compute, const pj_compute_host *place,
                               const pj_state_options *options, pj_error *err)
{
    seen.opened++;
    return PLAIN->open(compute, place, options, err);
}

static void counting_close(pj_compute *compute)
{
    seen.closed++;
    PLAIN->close(compute);
}

static void counting_reset(pj_compute *compute, uint32_t sequence)
{
    PLAIN->reset(compute, sequence);
}

static pj_status counting_forward(pj_compute *compute, const pj_pass *pass,
                                  pj_instrument *instrument)
{
    seen.prefills += pass->prefill;
    seen.decodes += !pass->prefill;
    seen.tokens += pass->tokens;
    return PLAIN->forward(compute, pass, instrument);
}

static void counting_more_logits(pj_compute *compute, const uint32_t *rows, uint32_t count,
                                 pj_instrument *instrument)
{
    PLAIN->more_logits(compute, rows, count, instrument);
}

static const pj_backend counting = {.version = PJ_BACKEND_VERSION,
                                    .name = "counting",
                                    .open = counting_open,
                                    .close = counting_close,
                                    .reset = counting_reset,
                                    .forward = counting_forward,
                                    .more_logits = counting_more_logits};

/* Hash of all logits of a generation. */
static pj_status generate(const pj_backend *backend, uint64_t *hash, pj_error *err)
{
    pj_engine *engine;
    pj_engine_options options = {.model = "synthetic:smollm2-135m,q8_0,layers=2",
                                 .threads = 2,
                                 .chunk = 4,
                                 .backend = backend};
    pj_prompt prompt = {.text = "ten bytes.", .bytes = 10};
    pj_generate_request request = {.prompts = &prompt,
                                   .prompt_count = 1,
                                   .max_tokens = NEW_TOKENS,
                                   .ignore_eos = true,
                                   .sampling = PJ_SAMPLING_GREEDY};
    pj_generate_result result = {0};
    pj_status status = pj_engine_open(&options, &engine, err);
    if (status != PJ_OK) return status;
    status = pj_engine_generate(engine, &request, &result, err);
    *hash = result.logits_hash;
    pj_generate_result_fini(&result);
    pj_engine_close(engine);
    return status;
}

static void every_pass_goes_through_the_table(void **state)
{
    uint64_t plain = 0, counted = 0;
    pj_error err = {0};
    if (generate(NULL, &plain, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(seen.opened, 0);
    if (generate(&counting, &counted, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(counted, plain);
    assert_int_equal(seen.opened, 1);
    assert_int_equal(seen.closed, 1);
    assert_int_equal(seen.prefills, 3); /* 10 tokens by 4 */
    assert_int_equal(seen.decodes, NEW_TOKENS - 1);
    assert_int_equal(seen.tokens, 10 + NEW_TOKENS - 1);
}

static void another_version_is_refused(void **state)
{
    uint64_t hash = 0;
    pj_error err = {0};
    pj_backend newer = counting;
    newer.version++;
    int opened = seen.opened;
    assert_int_equal(generate(&newer, &hash, &err), PJ_E_INTERNAL);
    assert_non_null(strstr(err.text, "counting"));
    assert_int_equal(seen.opened, opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_goes_through_the_table),
        cmocka_unit_test(another_version_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

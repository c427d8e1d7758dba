/* Blocks of one component each, in random order. Inside a block each span covers about a
 * millisecond of repetitions: a span per repetition would cost more than a norm of a small
 * model. */
#include "engine/generation/calibrate.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "engine/generation/engine_internal.h"

#include <string.h>

enum { SPAN_NS = 1000000, MAX_PARTS = 64 };

/* Setup of one phase: the work of a decode step or a prefill chunk. */
typedef struct bench {
    pj_pass_segment segment;
    pj_pass pass;
    uint32_t logit_row;
} bench;

typedef struct block {
    pj_phase phase;
    pj_instrument_name component;
} block;

typedef struct work {
    pj_engine *engine;
    const pj_calibrate_request *request;
    pj_compute compute;
    pj_instrument silent, instrument; /* the second one records */
    uint32_t preparation;             /* interned name */
    int32_t *ids;
    bench decode, prefill;
    block blocks[2 * MAX_PARTS];
    uint32_t block_count;
} work;

static void make_bench(bench *b, const int32_t *ids, uint32_t sequence, uint32_t rows, bool prefill)
{
    b->logit_row = rows - 1;
    b->segment = (pj_pass_segment){.sequence = sequence, .count = rows};
    b->pass = (pj_pass){.ids = ids,
                        .tokens = rows,
                        .segments = &b->segment,
                        .segment_count = 1,
                        .logit_rows = &b->logit_row,
                        .logit_count = 1,
                        .prefill = prefill};
}

static bool is_component(pj_instrument_name name)
{
    return name >= PJ_N_EMBED_TOKENS && name < PJ_N_OP_GATHER;
}

static pj_status calibrate_find_blocks(work *w, const bench *b, pj_phase phase)
{
    pj_pass_part part = {0};
    pj_status status = pj_compute_prepare(&w->compute, &b->pass, &part);
    for (int name = 1; name < PJ_N_COUNT; name++) {
        bool head = name == PJ_N_LM_HEAD; /* both a section and a component */
        if (!part.seen[name] || (!head && !is_component((pj_instrument_name)name))) continue;
        if (w->block_count < 2 * MAX_PARTS)
            w->blocks[w->block_count++] = (block){phase, (pj_instrument_name)name};
    }
    return status;
}

static void shuffle(work *w, pj_random *random)
{
    for (uint32_t i = w->block_count; i > 1; i--) {
        uint32_t k = (uint32_t)(pj_random_u64(random) % i);
        block swapped = w->blocks[i - 1];
        w->blocks[i - 1] = w->blocks[k];
        w->blocks[k] = swapped;
    }
}

static pj_status run_block(work *w, const block *b, uint32_t number)
{
    const bench *at = b->phase == PJ_PHASE_DECODE ? &w->decode : &w->prefill;
    uint32_t layers = w->engine->model.config.layers, layer = 0;
    pj_lane *lane = w->instrument.lane;
    pj_pass_part part = {0};
    /* Fills the buffers for this phase. The preparing pass has its own span, since its power is not
     * idle power. */
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE);
    pj_span_begin(lane, PJ_SPAN_SECTION, w->preparation);
    pj_status status = pj_compute_prepare(&w->compute, &at->pass, &part);
    pj_span_end(lane, NULL);
    pj_span_end(lane, NULL);
    part.only = b->component;
    pj_span_begin(lane, PJ_SPAN_PHASE, (uint32_t)b->phase);
    pj_span_begin(lane, PJ_SPAN_TOKEN, number);
    int64_t end_ns = pj_clock_ns() + w->request->block_ns;
    while (!status && pj_clock_ns() < end_ns && !pj_is_cancelled(w->request->cancel)) {
        int64_t span_end_ns = pj_clock_ns() + SPAN_NS;
        pj_span_begin(lane, PJ_SPAN_COMPONENT, w->instrument.names[b->component]);
        do {
            status = pj_compute_part(&w->compute, &at->pass, &part, layer);
            layer = layer + 1 == layers ? 0 : layer + 1;
        } while (!status && pj_clock_ns() < span_end_ns);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
    pj_span_end(lane, NULL);
    return status;
}

static pj_status prepare(work *w, pj_error *err)
{
    pj_engine *e = w->engine;
    const pj_calibrate_request *q = w->request;
    uint32_t longest = q->context > q->prefill_rows ? q->context : q->prefill_rows;
    if (q->context + 1 > e->context || q->prefill_rows > e->context || q->prefill_rows == 0)
        return pj_fail(err, PJ_E_INVALID,
                       "a calibration at %u tokens does not fit the context of %u", longest,
                       e->context);
    pj_state_options options = {.sequences = 2,
                                .context = longest + 1,
                                .max_tokens = longest,
                                .max_logits = 1,
                                .kv_type = e->kv_type};
    w->ids = pj_alloc(longest + 1, sizeof *w->ids);
    if (!w->ids) return pj_fail_memory(err, "a calibration");
    pj_random random = {q->seed};
    for (uint32_t i = 0; i <= longest; i++)
        w->ids[i] = (int32_t)(pj_random_u64(&random) % e->model.config.vocab);
    pj_status status = pj_instrument_init(&w->silent, NULL, PJ_STATISTICS_BY_DEPTH, err);
    if (status == PJ_OK)
        status = pj_compute_open(&w->compute, &e->loaded, &options, &w->silent, err);
    if (status == PJ_OK)
        status = pj_instrument_init(&w->instrument, q->run, PJ_STATISTICS_BY_DEPTH, err);
    if (status != PJ_OK) return status;
    w->preparation = pj_run_name(q->run, "preparation");
    bench fill;
    make_bench(&fill, w->ids, 0, q->context, true);
    fill.pass.logit_count = 0;
    if (q->context > 0) status = pj_compute_forward(&w->compute, &fill.pass);
    if (status != PJ_OK) return status;
    make_bench(&w->decode, w->ids, 0, 1, false);
    make_bench(&w->prefill, w->ids, 1, q->prefill_rows, true);
    status = calibrate_find_blocks(w, &w->decode, PJ_PHASE_DECODE);
    return status ? status : calibrate_find_blocks(w, &w->prefill, PJ_PHASE_PREFILL);
}

pj_status pj_engine_calibrate(pj_engine *engine, const pj_calibrate_request *request, pj_error *err)
{
    work *w = pj_alloc(1, sizeof *w);
    if (!w) return pj_fail_memory(err, "a calibration");
    w->engine = engine;
    w->request = request;
    pj_random random = {request->seed + 1};
    pj_status status = prepare(w, err);
    uint32_t total = w->block_count * request->passes, done = 0;
    for (uint32_t pass = 0; status == PJ_OK && pass < request->passes; pass++) {
        shuffle(w, &random);
        for (uint32_t i = 0;
             status == PJ_OK && i < w->block_count && !pj_is_cancelled(w->request->cancel); i++) {
            if (request->on_block)
                request->on_block(request->context_of_block, w->blocks[i].phase,
                                  pj_instrument_text(w->blocks[i].component), done, total);
            pj_clock_sleep_until(pj_clock_ns() + request->gap_ns);
            status = run_block(w, &w->blocks[i], done++);
            if (status == PJ_OK) status = pj_engine_check_files(engine, err);
        }
    }
    if (status == PJ_OK && pj_is_cancelled(w->request->cancel))
        status = pj_fail(err, PJ_E_CANCELLED, "the calibration was cancelled");
    pj_compute_close(&w->compute);
    pj_free(w->ids);
    pj_free(w);
    return status;
}

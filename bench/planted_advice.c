/* One made run for each rule. */
#include "bench/planted_advice.h"

#include <math.h>
#include <stdio.h>

void pj_planted_advice_none(pj_advice_facts *f)
{
    *f = (pj_advice_facts){
        .run_id = "01989c2e-7d1a-7c3e-9b8f-0123456789ab",
        .model = "models/demo",
        .dtype = "q4_0",
        .prompt = "'The kettle'",
        .has_energy = true,
        .input_tokens = 64,
        .output_tokens = 128,
        .batch = 1,
        .threads = 8,
        .request_mj = 10000,
        .total_mj = 10100,
        .load_mj = NAN,
        .prefill_mj = 3000,
        .decode_mj = 7000,
        .prefill_ms = 100,
        .decode_ms = 400,
        .relative_sd = 0.01,
        .idle_mw = 5000,
        .decode_flops = 1e12, /* not memory-bound: as fast per FLOP as prefill */
        .decode_bytes = 1e10,
        .weight_bytes = 9e9,
        .cache_bytes = 1e9,
        .matrix_mj = 6000,
        .head_mj = 500,
        .attention_mj = 600,
        .prefill_flops = 2.5e11,
        .model_bytes = 1e9,
        .memory_bytes = 16e9,
        .processor_cache_bytes = 3e7,
        .read_bytes_per_s = NAN,
        .kv_bytes_per_token = 1e5,
        .context = 4096,
        .kv_type = "f16",
        .parameters = 1e9,
        .rise = 1.08, /* by a context that has doubled */
        .rise_sd = 0.01,
        .rise_explained = 1.03,
        .host_share = 0.2,
        .disturbed_share = 0.01,
        .throttled_share = 0,
        .power_mw = 20000,
        .power_limit_mw = NAN,
        .interval = 0.05,
        .interval_calibrated = NAN,
        .prefix_share = NAN,
        .smaller_parameters = NAN,
        .g_per_kwh = NAN,
        .lowest_region = "Iceland",
        .lowest_g_per_kwh = 28,
    };
}

/* ---- parts ---- */

void pj_planted_bytes_bound(pj_advice_facts *f)
{
    f->decode_flops = 2e10; /* a twentieth of prefill's FLOP/s */
}

void pj_planted_no_room(pj_advice_facts *f)
{
    f->memory_bytes = 1.1e9;
}

void pj_planted_neighbour(pj_advice_facts *f, uint32_t threads, uint32_t batch, const char *dtype,
                          double ratio)
{
    pj_advice_neighbour *n = &f->neighbours[f->neighbour_count++];
    *n = (pj_advice_neighbour){.threads = threads,
                               .batch = batch,
                               .n = 5,
                               .ratio = ratio,
                               .lo = ratio * 0.98,
                               .hi = ratio * 1.02,
                               .speed = 1,
                               .power = ratio};
    snprintf(n->dtype, sizeof n->dtype, "%s", dtype);
}

static void waits_for_memory(pj_advice_facts *f)
{
    pj_planted_bytes_bound(f);
    pj_planted_no_room(f);
}

/* ---- a run for each rule ---- */

static void planted_advice_keep_resident(pj_advice_facts *f)
{
    f->load_mj = 4000;
    f->total_mj = 14000;
    f->same_model_last_hour = 3;
}

static void planted_advice_batch_down(pj_advice_facts *f)
{
    f->batch = 16;
    pj_planted_neighbour(f, 8, 4, "q4_0", 0.8);
}

static void dtype(pj_advice_facts *f)
{
    waits_for_memory(f);
    f->dtype = "bf16";
}

static void planted_advice_head(pj_advice_facts *f)
{
    f->dtype = "bf16";
    f->head_mj = 3000;
}

static void threads(pj_advice_facts *f)
{
    pj_planted_neighbour(f, 4, 1, "q4_0", 0.7);
    f->neighbours[0].speed = 0.98;
}

static void prompt(pj_advice_facts *f)
{
    f->prefill_mj = 9000;
    f->decode_mj = 1000;
    f->matrix_mj = 900;
    f->head_mj = 10;
    f->prefix_share = 0.8;
    f->prefix_runs = 12;
}

static void planted_advice_kv_precision(pj_advice_facts *f)
{
    f->cache_bytes = 6e9;
    f->attention_mj = 3000;
    f->kv_type = "f32";
}

static void planted_advice_speculate(pj_advice_facts *f)
{
    waits_for_memory(f);
    f->smaller_model = "small";
    f->smaller_parameters = 0.05e9;
}

static void planted_advice_disturbed(pj_advice_facts *f)
{
    f->disturbed_share = 0.3;
}

static void planted_advice_throttled(pj_advice_facts *f)
{
    f->throttled_share = 0.2;
}

static void planted_advice_rising(pj_advice_facts *f)
{
    f->rise = 1.5;
}

static void planted_advice_fallback(pj_advice_facts *f)
{
    f->host_share = 0.7;
}

static void planted_advice_power_limit(pj_advice_facts *f)
{
    waits_for_memory(f);
    f->power_limit_mw = 21000;
}

static void planted_advice_calibrate(pj_advice_facts *f)
{
    f->interval = 0.6;
}

static void planted_advice_idle(pj_advice_facts *f)
{
    f->window_ms = 3000e3;
    f->window_busy_ms = 100e3;
    f->window_runs = 20;
    f->window_mj = 20 * f->request_mj;
    f->window_prompts = 15;
}

static void planted_advice_region(pj_advice_facts *f)
{
    f->g_per_kwh = 500;
}

const pj_planted_advice pj_planted_advices[] = {
    {"keep-resident", planted_advice_keep_resident},
    {"batch-up", pj_planted_bytes_bound},
    {"batch-down", planted_advice_batch_down},
    {"dtype", dtype},
    {"head", planted_advice_head},
    {"threads", threads},
    {"prompt", prompt},
    {"kv-precision", planted_advice_kv_precision},
    {"speculate", planted_advice_speculate},
    {"disturbed", planted_advice_disturbed},
    {"throttled", planted_advice_throttled},
    {"rising", planted_advice_rising},
    {"fallback", planted_advice_fallback},
    {"power-limit", planted_advice_power_limit},
    {"calibrate", planted_advice_calibrate},
    {"idle", planted_advice_idle},
    {"region", planted_advice_region},
    {0},
};

void pj_planted_advice_vary(pj_advice_facts *f, pj_random *random, double share)
{
    double *const figures[] = {
        &f->request_mj,      &f->total_mj,     &f->load_mj,           &f->prefill_mj,
        &f->decode_mj,       &f->prefill_ms,   &f->decode_ms,         &f->idle_mw,
        &f->decode_flops,    &f->decode_bytes, &f->weight_bytes,      &f->cache_bytes,
        &f->matrix_mj,       &f->head_mj,      &f->attention_mj,      &f->prefill_flops,
        &f->model_bytes,     &f->memory_bytes, &f->parameters,        &f->disturbed_share,
        &f->throttled_share, &f->interval,     &f->prefix_share,      &f->smaller_parameters,
        &f->window_ms,       &f->g_per_kwh,    &f->kv_bytes_per_token};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        *figures[i] *= exp(share * pj_random_normal(random));
}

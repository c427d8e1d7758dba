/*
 * A program that records a synthetic inference with only the public header: a prompt of eight
 * tokens, then as many decode steps as the first argument says (16 when absent), each of four
 * layers with a few components that burn a little time.
 *
 *     cc record.c -lperjoule -o record && ./record 32 sim
 *
 * and prints how many joules it took. The second argument is the list of power sources (default
 * "auto"), the third the database (default "none": nothing is kept).
 */
#include <perjoule.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4 };

typedef struct names {
    uint32_t layers, sampling, q_proj, attention, down_proj, qk_matmul, softmax, entropy;
} names;

static volatile double sink;

/* Works for about `steps` nanoseconds and returns a figure to keep the compiler honest. */
static double burn(int steps)
{
    double x = 1.0;
    for (int i = 0; i < steps; i++) x = x * 1.0000001 + 1e-9;
    return sink = x;
}

static void component(pj_lane *lane, uint32_t name, int steps, double flops)
{
    pj_span_begin(lane, PJ_SPAN_COMPONENT, name);
    float y = (float)burn(steps);
    pj_stats stats = {.mean_abs = y, .mean = y, .std = 0.5f, .max_abs = 2 * y, .sparsity = 0.1f};
    pj_span_end(lane, &(pj_work){.flops = flops, .bytes = flops / 2, .stats = &stats});
}

/* A component with nested operations, recorded at depth deep. */
static void attention(pj_lane *lane, const names *n, int keys)
{
    pj_span_begin(lane, PJ_SPAN_COMPONENT, n->attention);
    pj_span_begin(lane, PJ_SPAN_OPERATION, n->qk_matmul);
    burn(200 * keys);
    pj_span_next(lane, &(pj_work){.flops = 64.0 * keys, .bytes = 32.0 * keys}, PJ_SPAN_OPERATION,
                 n->softmax);
    burn(40 * keys);
    pj_extra entropy = {n->entropy, PJ_EXTRA_SCALAR, 0.7};
    pj_span_end(lane,
                &(pj_work){.flops = 5.0 * keys, .bytes = 0, .extras = &entropy, .extra_count = 1});
    pj_span_end(lane, NULL);
}

static void forward(pj_lane *lane, const names *n, int tokens, int keys)
{
    pj_span_begin(lane, PJ_SPAN_SECTION, n->layers);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        pj_span_begin(lane, PJ_SPAN_LAYER, layer);
        component(lane, n->q_proj, 20000 * tokens, 1e6 * tokens);
        attention(lane, n, keys);
        component(lane, n->down_proj, 40000 * tokens, 2e6 * tokens);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
}

static void infer(pj_run *run, int steps)
{
    pj_lane *lane = pj_run_lane(run);
    const names n = {pj_run_name(run, "layers"),    pj_run_name(run, "sampling"),
                     pj_run_name(run, "q_proj"),    pj_run_name(run, "attention"),
                     pj_run_name(run, "down_proj"), pj_run_name(run, "qk_matmul"),
                     pj_run_name(run, "softmax"),   pj_run_name(run, "attention_entropy")};
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 0);
    forward(lane, &n, 8, 8);
    pj_token_text(lane, 0, 17, "Once", 4);
    pj_span_end(lane, NULL);
    pj_span_next(lane, NULL, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    for (int i = 1; i < steps; i++) {
        char text[16];
        int bytes = snprintf(text, sizeof text, " word%d", i);
        pj_span_begin(lane, PJ_SPAN_TOKEN, (uint32_t)i);
        forward(lane, &n, 1, 8 + i);
        pj_span_begin(lane, PJ_SPAN_SECTION, n.sampling);
        burn(2000);
        pj_span_end(lane, NULL);
        pj_token_text(lane, 0, 100 + i, text, (size_t)bytes);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
    pj_run_set_tokens(run, 8, (uint64_t)steps);
}

static int fail(const pj_error *err)
{
    fprintf(stderr, "record: %s\n", err->text);
    return 1;
}

static void print_energy(const char *name, const pj_joules_mj *energy)
{
    if (energy->mj != energy->mj) { /* NAN */
        printf("%-16s unavailable\n", name);
        return;
    }
    printf("%-16s %8.3f J", name, energy->mj / 1e3);
    if (energy->lo_mj == energy->lo_mj)
        printf("  (95 %%: %.3f to %.3f)", energy->lo_mj / 1e3, energy->hi_mj / 1e3);
    printf("\n");
}

static void print_result(const pj_result *r)
{
    static const char *const sources[] = {"unavailable", "modelled", "measured"};
    printf("run %s: %.0f ms, energy %s%s\n", r->run_id, r->duration_ms, sources[r->energy_source],
           r->is_partial ? ", without some of the machine's rails" : "");
    print_energy("total", &r->total);
    print_energy("above idle", &r->net);
    for (uint32_t i = 0; i < r->phase_count; i++)
        print_energy(pj_phase_name(r->phases[i].phase), &r->phases[i].gross);
    if (r->joules_per_token == r->joules_per_token)
        printf("%-16s %8.4f J\n", "per token", r->joules_per_token);
}

int main(int argc, char **argv)
{
    pj_session *session;
    pj_run *run;
    pj_error err = {0};
    int steps = argc > 1 ? atoi(argv[1]) : 16;
    pj_session_options options = {.size = sizeof options,
                                  .power = argc > 2 ? argv[2] : NULL,
                                  .database = argc > 3 ? argv[3] : "none",
                                  .baseline_seconds = 0.2};
    if (pj_session_open(&options, &session, &err) != PJ_OK) return fail(&err);
    pj_run_options about = {.size = sizeof about,
                            .prompt = "Tell me a story",
                            .model_name = "made-up",
                            .depth = PJ_DEPTH_DEEP,
                            .settings_json = "{\"steps\": true}"};
    if (pj_run_begin(session, &about, &run, &err) != PJ_OK) {
        pj_session_close(session);
        return fail(&err);
    }
    pj_run_facts model = {.size = sizeof model, .dtype = "f64", .layer_count = LAYERS};
    pj_run_describe(run, &model, NULL);
    infer(run, steps);
    pj_result result = {.size = sizeof result};
    pj_status status = pj_run_end(run, PJ_RUN_COMPLETED, &result, &err);
    print_result(&result);
    pj_result_fini(&result);
    pj_session_close(session);
    return status == PJ_OK ? 0 : fail(&err);
}

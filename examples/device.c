/*
 * A program whose work is done by a device: the host opens a token, submits its work and waits;
 * the device's spans are added when their times are known, those of the last token after it has
 * ended. The device is a thread here.
 *
 *     cc device.c -lperjoule -lpthread -o device && ./device 50 sim:rails=cpu+gpu
 *
 * The first argument is the number of tokens (50 when absent), the second the list of power sources
 * (default "auto"), the third the database (default "none"). Prints what each device took, as the
 * run stores it.
 */
#include <perjoule.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, PARTS = 2, SPANS = LAYERS * (1 + PARTS) };

/* What was submitted for one token, and when the device did it. */
typedef struct job {
    pj_launch launch;
    int64_t begin_ns[LAYERS][PARTS], end_ns[LAYERS][PARTS];
} job;

static volatile double sink;

static void *compute(void *context)
{
    job *j = context;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int part = 0; part < PARTS; part++) {
            j->begin_ns[layer][part] = pj_clock_ns();
            double x = 1.0;
            for (int i = 0; i < 200000 * (part + 1); i++) x = x * 1.0000001 + 1e-9;
            sink = x;
            j->end_ns[layer][part] = pj_clock_ns();
        }
    return NULL;
}

/* A layer, then its components, each with the index of the layer plus 1 as its parent. */
static pj_status add_spans(pj_run *run, uint32_t device, const job *j, const uint32_t *names,
                           pj_error *err)
{
    pj_device_span spans[SPANS];
    pj_work work = {.flops = 1e6, .bytes = 1e5};
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        uint32_t around = count + 1;
        spans[count++] = (pj_device_span){.begin_ns = j->begin_ns[layer][0],
                                          .end_ns = j->end_ns[layer][PARTS - 1],
                                          .kind = PJ_SPAN_LAYER,
                                          .id = layer,
                                          .layer = -1};
        for (int part = 0; part < PARTS; part++)
            spans[count++] = (pj_device_span){.begin_ns = j->begin_ns[layer][part],
                                              .end_ns = j->end_ns[layer][part],
                                              .kind = PJ_SPAN_COMPONENT,
                                              .id = names[part],
                                              .layer = -1,
                                              .parent = around,
                                              .work = &work};
    }
    pj_device_batch batch = {.size = sizeof batch,
                             .launch = &j->launch,
                             .spans = spans,
                             .span_count = count,
                             .clock_error_ns = 100};
    return pj_device_spans_add(run, device, &batch, err);
}

static pj_status decode(pj_run *run, uint32_t device, uint32_t tokens, pj_error *err)
{
    const uint32_t names[PARTS] = {pj_run_name(run, "attention"), pj_run_name(run, "down_proj")};
    pj_lane *lane = pj_run_lane(run);
    pj_status status = PJ_OK;
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    for (uint32_t token = 0; token < tokens && status == PJ_OK; token++) {
        job j;
        pthread_t queue;
        pj_span_begin(lane, PJ_SPAN_TOKEN, token);
        pj_device_launch(lane, &j.launch);
        if (pthread_create(&queue, NULL, compute, &j) != 0) return PJ_E_INTERNAL;
        pthread_join(queue, NULL);
        pj_token_text(lane, 0, -1, "x", 1);
        pj_span_end(lane, NULL);
        status = add_spans(run, device, &j, names, err);
    }
    pj_span_end(lane, NULL);
    return status;
}

int main(int argc, char **argv)
{
    uint32_t tokens = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 50, device = 0;
    pj_session *session = NULL;
    pj_run *run = NULL;
    pj_error err = {0};
    pj_session_options how = {.size = sizeof how,
                              .power = argc > 2 ? argv[2] : NULL,
                              .database = argc > 3 ? argv[3] : "none",
                              .baseline_seconds = 0.2};
    pj_run_options what = {.size = sizeof what, .model_name = "example", .depth = PJ_DEPTH_DEEP};
    pj_device_info gpu = {.size = sizeof gpu, .name = "a thread", .memory_bytes = 1 << 30};
    pj_result result = {.size = sizeof result};
    pj_status status = pj_session_open(&how, &session, &err);
    if (status == PJ_OK) status = pj_run_begin(session, &what, &run, &err);
    if (status == PJ_OK) status = pj_device_declare(run, &gpu, &device, &err);
    if (status == PJ_OK) status = decode(run, device, tokens, &err);
    if (run) {
        pj_status ended =
            pj_run_end(run, status == PJ_OK ? PJ_RUN_COMPLETED : PJ_RUN_FAILED, &result, &err);
        if (status == PJ_OK) status = ended;
    }
    const char *devices = result.json ? strstr(result.json, "\"devices\":") : NULL;
    const char *end = devices ? strstr(devices, "}}") : NULL;
    if (end) printf("%.*s\n", (int)(end + 2 - devices), devices);
    printf("%g J for %u tokens\n", result.total.mj / 1000, tokens);
    if (status != PJ_OK) fprintf(stderr, "%s\n", err.text);
    pj_result_fini(&result);
    pj_session_close(session);
    return status == PJ_OK && end ? 0 : 1;
}

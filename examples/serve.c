/*
 * A program that records several requests at once, as an inference server does: each thread answers
 * requests of different lengths, every request is a run, and the machine's energy is divided
 * between concurrent runs in proportion to their sequences. A window around all of it gives the
 * machine's total energy.
 *
 *     cc serve.c -lperjoule -lpthread -o serve && ./serve sim
 *
 * The first argument is the list of power sources (default "auto").
 */
#include <perjoule.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 3, REQUESTS = 2 };

typedef struct server {
    pj_session *session;
    pthread_mutex_t mutex; /* guards joules */
    double joules;
} server;

static void burn(int ms)
{
    int64_t until = pj_clock_ns() + ms * INT64_C(1000000);
    while (pj_clock_ns() < until) {
    }
}

static void decode(pj_run *run, int tokens)
{
    pj_lane *lane = pj_run_lane(run);
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PREFILL);
    pj_span_begin(lane, PJ_SPAN_TOKEN, 0);
    burn(20);
    pj_span_end(lane, NULL);
    pj_span_next(lane, NULL, PJ_SPAN_PHASE, PJ_PHASE_DECODE);
    for (int i = 1; i < tokens; i++) {
        pj_span_begin(lane, PJ_SPAN_TOKEN, (uint32_t)i);
        burn(5);
        pj_span_end(lane, NULL);
    }
    pj_span_end(lane, NULL);
}

static void answer(server *s, int number)
{
    pj_error err = {0};
    pj_run *run = NULL;
    pj_result result = {.size = sizeof result};
    pj_run_options request = {.size = sizeof request, .model_name = "mine", .weight = 2};
    if (pj_run_begin(s->session, &request, &run, &err) != PJ_OK) {
        fprintf(stderr, "%s\n", err.text);
        return;
    }
    decode(run, 10 + 10 * number);
    pj_run_set_weight(run, 1, NULL); /* one of its two sequences has ended */
    decode(run, 10);
    pj_run_set_tokens(run, 5, (uint64_t)(20 + 10 * number));
    if (pj_run_end(run, PJ_RUN_COMPLETED, &result, &err) != PJ_OK)
        fprintf(stderr, "%s\n", err.text);
    pthread_mutex_lock(&s->mutex);
    s->joules += result.total.mj / 1000;
    pthread_mutex_unlock(&s->mutex);
    pj_result_fini(&result);
}

static void *work(void *context)
{
    for (int i = 0; i < REQUESTS; i++) answer(context, i);
    return NULL;
}

int main(int argc, char **argv)
{
    pj_error err = {0};
    pj_open_window *window = NULL;
    pj_window_result all = {.size = sizeof all};
    pthread_t threads[THREADS];
    server s = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    pj_session_options options = {.size = sizeof options,
                                  .power = argc > 1 ? argv[1] : NULL,
                                  .database = "none",
                                  .share_rule = "weight"};
    if (pj_session_open(&options, &s.session, &err) != PJ_OK ||
        pj_window_begin(s.session, &window, &err) != PJ_OK) {
        fprintf(stderr, "%s\n", err.text);
        pj_session_close(s.session);
        return 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &s);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pj_window_end(window, &all, &err);
    if (all.energy_source == PJ_UNAVAILABLE)
        printf("no energy: %.0f ms\n", all.duration_ms);
    else
        printf("%d requests took %.4g J of the machine's %.4g J in %.0f ms\n", THREADS * REQUESTS,
               s.joules, all.total.mj / 1000, all.duration_ms);
    pj_session_close(s.session);
    return 0;
}

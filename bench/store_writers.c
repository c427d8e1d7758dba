/* Many connections that store runs in one database at the same time. Every writer is a thread with
 * a connection of its own; it stores small deep runs as fast as it can and replaces every tenth
 * once, as a repeated transfer does. Afterwards the database must hold each run exactly once. */
#include "bench/store_writers.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "bench/store_run.h"
#include "cli/terminal.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 4, LAYERS = 4, SAMPLES = 50, REPLACED = 10 };
static const char experiment[] = "bench store writers";

typedef struct writer {
    pthread_t thread;
    const char *database;
    uint64_t seed, saved, failed;
    int64_t end_ns;
    double slowest_ms;
    pj_error err; /* the first failure */
} writer;

static void save_one(writer *w, pj_store *store, uint64_t number)
{
    pj_run_data run;
    pj_error err = {0};
    if (!pj_bench_make_run(&run, w->seed + number, TOKENS, LAYERS, SAMPLES)) return;
    run.info.experiment_name = experiment;
    int64_t begin = pj_clock_ns();
    pj_status status = pj_store_save(store, &run, &err);
    w->slowest_ms = fmax(w->slowest_ms, (double)(pj_clock_ns() - begin) / 1e6);
    if (status == PJ_OK) {
        w->saved++;
        if (number % REPLACED == 0) status = pj_store_save(store, &run, &err);
    }
    if (status != PJ_OK && !w->failed++) w->err = err;
    pj_run_data_fini(&run);
}

static void *write_always(void *context)
{
    writer *w = context;
    pj_store *store = NULL;
    pj_store_options options = {.path = w->database, .is_direct = true};
    if (pj_store_open(&options, &store, &w->err) != PJ_OK) {
        w->failed++;
        return NULL;
    }
    for (uint64_t number = 0; pj_clock_ns() < w->end_ns; number++) save_one(w, store, number);
    pj_store_close(store);
    return NULL;
}

static uint64_t count_experiment(pj_store *store, pj_status *status, pj_error *err)
{
    pj_run_list list = {0};
    *status =
        pj_store_list(store, &(pj_run_query){.experiment = experiment, .limit = 1}, &list, err);
    uint64_t total = list.total;
    if (*status == PJ_OK) pj_run_list_fini(&list);
    return total;
}

static pj_status count_lost(pj_bench_writers *all, pj_error *err)
{
    pj_store *store = NULL;
    pj_status status = pj_store_open(&(pj_store_options){.path = all->database}, &store, err);
    uint64_t found = status == PJ_OK ? count_experiment(store, &status, err) : 0;
    pj_store_close(store);
    all->lost = found > all->saved ? found - all->saved : all->saved - found;
    return status;
}

pj_status pj_bench_writers_run(pj_bench_writers *all, pj_error *err)
{
    writer *writers = pj_alloc(all->count, sizeof *writers);
    int64_t begin = pj_clock_ns();
    uint32_t started = 0;
    pj_status status = writers ? PJ_OK : pj_fail_memory(err, "the writers");
    for (; status == PJ_OK && started < all->count; started++) {
        writer *w = &writers[started];
        *w = (writer){.database = all->database,
                      .seed = (uint64_t)(started + 1) << 32,
                      .end_ns = begin + (int64_t)(all->seconds * (double)PJ_NS_PER_S)};
        status = pj_thread_start(&w->thread, "pj-writer", write_always, w, err);
        if (status != PJ_OK) break;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(writers[i].thread, NULL);
        all->saved += writers[i].saved;
        all->failed += writers[i].failed;
        all->slowest_ms = fmax(all->slowest_ms, writers[i].slowest_ms);
        if (writers[i].failed) pj_say("a writer failed: %s", writers[i].err.text);
    }
    pj_free(writers);
    all->seconds = (double)(pj_clock_ns() - begin) * 1e-9;
    return status == PJ_OK ? count_lost(all, err) : status;
}

/* perjoule bench memory: read bandwidth by threads and by streams per thread. */
#include "base/buffer.h"
#include "base/cpus.h"
#include "base/json.h"
#include "cli/options.h"
#include "engine/files/pages.h"
#include "engine/kernels/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM_KINDS = 4, MAX_THREADS = 16 };
static const unsigned streams[STREAM_KINDS] = {1, 2, 4, 8};

typedef struct settings {
    int64_t megabytes, repeat;
    bool json;
} settings;

typedef struct rates {
    unsigned threads;
    double bytes_s[STREAM_KINDS]; /* the fastest of the repeats */
} rates;

/* 1, 2, 4, ... and all. */
static unsigned thread_counts(unsigned counts[MAX_THREADS])
{
    unsigned all = (unsigned)pj_cpu_allowed(NULL, 0), n = 0;
    for (unsigned t = 1; t < all && n + 1 < MAX_THREADS; t *= 2) counts[n++] = t;
    counts[n++] = all;
    return n;
}

static pj_status memory_measure(const settings *s, unsigned threads, const char *memory,
                                size_t bytes, rates *r, pj_error *err)
{
    pj_team *team;
    pj_status status = pj_team_new(threads, true, &team, err);
    if (status) return status;
    *r = (rates){.threads = threads};
    /* interleaved, so that a slow moment affects all alike */
    for (int64_t i = 0; i < s->repeat; i++)
        for (int k = 0; k < STREAM_KINDS; k++)
            for (int d = 0; d < PJ_AHEAD_DISTANCES; d++)
                r->bytes_s[k] = fmax(r->bytes_s[k], pj_limits_read(team, memory, bytes, streams[k],
                                                                   pj_ahead_distances[d]));
    pj_team_free(team);
    return PJ_OK;
}

static void memory_print_table(const settings *s, const rates *r, unsigned count)
{
    printf("Memory read in GB/s, %lld MB, best of %lld with each prefetch distance;\n"
           "columns: streams per thread\n\n",
           (long long)s->megabytes, (long long)s->repeat);
    printf("%7s", "threads");
    for (int k = 0; k < STREAM_KINDS; k++) printf(" %8u", streams[k]);
    printf("\n");
    for (unsigned i = 0; i < count; i++) {
        printf("%7u", r[i].threads);
        for (int k = 0; k < STREAM_KINDS; k++) printf(" %8.1f", r[i].bytes_s[k] * 1e-9);
        printf("\n");
    }
}

static void memory_print_json(const settings *s, const rates *r, unsigned count)
{
    pj_buffer buffer;
    pj_json json;
    double best = 0;
    pj_buffer_init(&buffer, 1 << 20);
    pj_json_init(&json, &buffer);
    pj_json_object_begin(&json);
    pj_json_kv_int(&json, "megabytes", s->megabytes);
    pj_json_kv_int(&json, "repeat", s->repeat);
    pj_json_key(&json, "rows");
    pj_json_array_begin(&json);
    for (unsigned i = 0; i < count; i++)
        for (int k = 0; k < STREAM_KINDS; k++) {
            pj_json_object_begin(&json);
            pj_json_kv_uint(&json, "threads", r[i].threads);
            pj_json_kv_uint(&json, "streams", streams[k]);
            pj_json_kv_double(&json, "gb_per_second", r[i].bytes_s[k] * 1e-9);
            pj_json_object_end(&json);
            best = fmax(best, r[i].bytes_s[k]);
        }
    pj_json_array_end(&json);
    pj_json_kv_double(&json, "best_gb_per_second", best * 1e-9);
    pj_json_object_end(&json);
    printf("%s\n", pj_buffer_get(&buffer));
    pj_buffer_fini(&buffer);
}

static int run_bench_memory(const pj_command *command, int argc, char **argv)
{
    settings s = {.megabytes = 512, .repeat = 5};
    int positional;
    const pj_option options[] = {
        {"size", 0, PJ_OPTION_INT, &s.megabytes, "MB", "memory to read (512)", 16, 1 << 16},
        {"repeat", 0, PJ_OPTION_INT, &s.repeat, "N", "take the best of N repeats (5)", 1, 1000},
        {"json", 0, PJ_OPTION_FLAG, &s.json, NULL, "print one JSON object"},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_error err = {0};
    unsigned counts[MAX_THREADS], count = thread_counts(counts);
    rates rows[MAX_THREADS];
    size_t bytes = (size_t)s.megabytes << 20;
    char *memory = pj_pages_alloc(bytes); /* allocated like weights */
    if (!memory) {
        pj_fail_memory(&err, "the memory to read");
        return pj_command_failed(command, &err);
    }
    memset(memory, 1, bytes); /* real pages instead of the shared zero page */
    for (unsigned i = 0; i < count; i++)
        if (memory_measure(&s, counts[i], memory, bytes, &rows[i], &err)) break;
    pj_pages_free(memory, bytes);
    if (err.status) return pj_command_failed(command, &err);
    if (s.json)
        memory_print_json(&s, rows, count);
    else
        memory_print_table(&s, rows, count);
    return PJ_EXIT_OK;
}

const pj_command pj_bench_memory = {
    .name = "bench memory",
    .summary = "read bandwidth by threads and streams",
    .run = run_bench_memory,
    .usage = "[options]",
    .text = "Reads memory with 1, 2, 4, ... pinned threads, each walking its share in one to eight "
            "interleaved streams. Decode cannot be faster than this allows; some processors reach "
            "their bandwidth only with several streams per thread.",
    .examples = "perjoule bench memory\nperjoule bench memory --size 1024 --json\n",
};

#include "trace/attention_work.h"

#include "trace/json_member.h"

#include <math.h>

static const char *const names[PJ_ATTENTION_KINDS] = {"full", "window", "chosen", "index"};

/* 1 + 2 + ... + n */
static double triangle(double n)
{
    return n * (n + 1) / 2;
}

/* Keys that the first n queries see, at most `most` each; 0: none. */
static double bounded(double n, double most)
{
    if (!(most > 0)) return 0;
    return n <= most ? triangle(n) : triangle(most) + most * (n - most);
}

static double in_chunks(double n, double length)
{
    double whole = length > 0 ? floor(n / length) : 0;
    return whole * triangle(length) + triangle(n - whole * length);
}

static double pairs_before(const pj_attention_work *w, pj_attention_reach kind, double n)
{
    switch (kind) {
    case PJ_ATTENTION_WINDOW: return w->chunks ? in_chunks(n, w->window) : bounded(n, w->window);
    case PJ_ATTENTION_CHOSEN: return bounded(n, w->kept);
    case PJ_ATTENTION_INDEX: return n > w->kept ? triangle(n) - triangle(w->kept) : 0;
    default: return triangle(n);
    }
}

double pj_attention_pairs(const pj_attention_work *work, pj_attention_reach kind, double first,
                          double end)
{
    return pairs_before(work, kind, end) - pairs_before(work, kind, first);
}

static double attention_work_sum(const pj_attention_work *work, const double *each, double first,
                                 double end)
{
    double sum = 0;
    for (int k = 0; k < PJ_ATTENTION_KINDS; k++)
        if (each[k] != 0) sum += each[k] * pj_attention_pairs(work, k, first, end);
    return sum;
}

double pj_attention_flops(const pj_attention_work *work, double first, double end)
{
    return attention_work_sum(work, work->flops, first, end);
}

double pj_attention_bytes(const pj_attention_work *work, double first, double end)
{
    return attention_work_sum(work, work->bytes, first, end);
}

void pj_attention_work_json(const pj_attention_work *work, pj_json *json)
{
    pj_json_kv_object_begin(json, "attention_work");
    for (int k = 0; k < PJ_ATTENTION_KINDS; k++) {
        if (work->flops[k] == 0) continue;
        pj_json_kv_object_begin(json, names[k]);
        pj_json_kv_double(json, "flops_per_position", work->flops[k]);
        pj_json_kv_double(json, "bytes_per_position", work->bytes[k]);
        if (k == PJ_ATTENTION_WINDOW) {
            pj_json_kv_double(json, "positions", work->window);
            pj_json_kv_bool(json, "chunks", work->chunks);
        }
        if (k == PJ_ATTENTION_CHOSEN) pj_json_kv_double(json, "positions", work->kept);
        pj_json_object_end(json);
    }
    pj_json_object_end(json);
}

static double attention_work_number(const json_t *kind, const char *name)
{
    double value = pj_member_number(kind, name);
    return value > 0 ? value : 0;
}

bool pj_attention_work_read(const json_t *object, pj_attention_work *work)
{
    const json_t *all = json_object_get(object, "attention_work");
    *work = (pj_attention_work){0};
    if (!json_is_object(all)) return false;
    for (int k = 0; k < PJ_ATTENTION_KINDS; k++) {
        const json_t *kind = json_object_get(all, names[k]);
        work->flops[k] = attention_work_number(kind, "flops_per_position");
        work->bytes[k] = attention_work_number(kind, "bytes_per_position");
    }
    const json_t *window = json_object_get(all, names[PJ_ATTENTION_WINDOW]);
    work->window = attention_work_number(window, "positions");
    work->chunks = json_is_true(json_object_get(window, "chunks"));
    work->kept =
        attention_work_number(json_object_get(all, names[PJ_ATTENTION_CHOSEN]), "positions");
    return true;
}

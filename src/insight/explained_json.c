/* Explanations as JSON. */
#include "insight/explained.h"

#include <math.h>

static void write_amount(pj_json *json, const char *key, const pj_why_amount *a)
{
    pj_json_kv_object_begin(json, key);
    pj_json_kv_double(json, "calls", a->calls);
    pj_json_kv_double(json, "ms", a->ms);
    pj_json_kv_double(json, "mj", a->mj);
    pj_json_kv_double(json, "flops", a->flops);
    pj_json_kv_double(json, "bytes", a->bytes);
    pj_json_object_end(json);
}

static void write_estimate(pj_json *json, double mj, pj_bounds bounds, double of)
{
    pj_json_kv_double(json, "mj", mj);
    pj_json_kv_double(json, "mj_lo", bounds.lo);
    pj_json_kv_double(json, "mj_hi", bounds.hi);
    pj_json_kv_double(json, "share", mj / of);
}

static void write_names(pj_json *json, const pj_why_row *r)
{
    pj_json_kv_string(json, "phase", pj_phase_name((pj_phase)r->phase));
    pj_json_kv_string(json, "part", r->name);
    pj_json_kv_string(json, "part_b", r->other ? r->other : r->name);
    pj_json_kv_string(json, "matched_by", pj_why_match_name(r->match));
}

static void write_same(pj_json *json, const pj_why_row *r)
{
    if (r->same_values < 0)
        pj_json_kv_null(json, "same_values");
    else
        pj_json_kv_bool(json, "same_values", r->same_values == 1);
}

static void write_row(pj_json *json, const pj_why_row *r)
{
    pj_json_object_begin(json);
    write_names(json, r);
    write_same(json, r);
    write_amount(json, "a", &r->a);
    write_amount(json, "b", &r->b);
    pj_json_kv_double(json, "difference_mj", r->difference_mj);
    pj_json_kv_double(json, "difference_mj_lo", r->bounds.lo);
    pj_json_kv_double(json, "difference_mj_hi", r->bounds.hi);
    pj_json_kv_object_begin(json, "by");
    pj_json_kv_double(json, "calls_mj", r->split.calls);
    pj_json_kv_double(json, "flops_mj", r->split.flops);
    pj_json_kv_double(json, "bytes_mj", r->split.bytes);
    pj_json_kv_double(json, "time_mj", r->split.time);
    pj_json_kv_double(json, "power_mj", r->split.power);
    pj_json_kv_double(json, "common_mj", r->from.mj - r->a.mj);
    pj_json_object_end(json);
    pj_json_object_end(json);
}

static void write_finding(pj_json *json, const pj_why *why, const pj_why_row *r)
{
    char text[256];
    pj_why_row_text(r, text, sizeof text);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", pj_why_kind_name(r->kind));
    write_names(json, r);
    pj_json_kv_string(json, "equals", r->equals);
    write_estimate(json, r->explained_mj, r->explained, why->request_a_mj);
    pj_json_kv_string(json, "text", text);
    pj_json_object_end(json);
}

static void write_common(pj_json *json, const pj_why *why, const pj_why_common *c)
{
    char text[256];
    pj_why_common_text(c, text, sizeof text);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", pj_why_kind_name(c->kind));
    const char *part = c->kind == PJ_WHY_LENGTH ? pj_why_common_part(c) : NULL;
    pj_json_kv_string(json, "phase", pj_why_common_phase(c));
    pj_json_kv_string(json, "part", part);
    pj_json_kv_string(json, "part_b", part);
    pj_json_kv_string(json, "matched_by", NULL);
    pj_json_kv_string(json, "equals", NULL);
    write_estimate(json, c->explained_mj, c->explained, why->request_a_mj);
    pj_json_kv_string(json, "text", text);
    pj_json_object_end(json);
}

static void write_why(const pj_explained *e, pj_json *json)
{
    const pj_why *w = &e->why;
    char text[256];
    pj_json_object_begin(json);
    pj_json_kv_string(json, "unit", w->per_run ? "mJ/run" : "mJ/token");
    pj_json_kv_uint(json, "runs_a", w->runs_a);
    pj_json_kv_uint(json, "runs_b", w->runs_b);
    pj_json_kv_double(json, "mj_per_token_a", w->request_a_mj);
    pj_json_kv_double(json, "mj_per_token_a_lo", w->request_a.lo);
    pj_json_kv_double(json, "mj_per_token_a_hi", w->request_a.hi);
    pj_json_kv_double(json, "mj_per_token_b", w->request_b_mj);
    pj_json_kv_double(json, "mj_per_token_b_lo", w->request_b.lo);
    pj_json_kv_double(json, "mj_per_token_b_hi", w->request_b.hi);
    pj_json_kv_double(json, "ratio_lo", w->ratio.lo);
    pj_json_kv_double(json, "ratio_hi", w->ratio.hi);
    pj_json_kv_double(json, "difference_mj", w->request_b_mj - w->request_a_mj);
    pj_json_kv_double(json, "explained_mj", e->refusal ? NAN : w->explained_mj);
    pj_json_kv_double(json, "disturbed_mj_a", w->disturbed_a_mj);
    pj_json_kv_double(json, "disturbed_mj_b", w->disturbed_b_mj);
    pj_json_kv_string(json, "refusal", e->refusal);
    pj_json_kv_string(json, "unlike", *e->unlike ? e->unlike : NULL);
    bool is_unplaced = !e->refusal && pj_why_unplaced_text(w, text, sizeof text);
    pj_json_kv_string(json, "unplaced", is_unplaced ? text : NULL);
    pj_json_kv_array_begin(json, "findings");
    for (uint32_t i = 0; i < w->common_count && !e->refusal; i++)
        write_common(json, w, &w->commons[i]);
    for (uint32_t i = 0; i < w->named_count && !e->refusal; i++)
        write_finding(json, w, &w->rows[i]);
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "parts");
    for (uint32_t i = 0; i < w->row_count; i++) write_row(json, &w->rows[i]);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_explained_write(const pj_explained *e, pj_json *json)
{
    pj_json_object_begin(json);
    pj_sides_write(e->sides, json);
    pj_json_key(json, "why");
    write_why(e, json);
    pj_json_object_end(json);
}

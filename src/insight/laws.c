/* Chooses for each law the largest set of runs that differ only in its variable. */
#include "insight/laws.h"

#include "base/ids.h"
#include "insight/sides.h"
#include "record/machine.h"
#include "trace/model_figures.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

enum { MOST_RUNS = 2000 };

/* ---- runs ------------------------------------------------------------------------------------ */

typedef enum figure {
    PARAMETERS = 0,
    ACTIVE_PARAMETERS,
    LAYERS,
    HIDDEN,
    FFN_WIDTH,
    BATCH,
    INPUT,
    OUTPUT,
    FIGURES = PJ_LAWS
} figure;

static const char *const figures[FIGURES] = {"parameters",
                                             "active_parameters",
                                             "layers",
                                             "hidden_size",
                                             "intermediate_size",
                                             "batch",
                                             "input",
                                             "output"};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return pj_hash64(hash, text ? text : "", text ? strlen(text) : 0);
}

static bool laws_read_row(const pj_run_info *info, pj_law_run *r)
{
    pj_model_figures model;
    char device[PJ_DEVICES_TEXT];
    double batch = info->batch_size ? info->batch_size : 1;
    pj_model_figures_read(info->model_json, &model);
    *r =
        (pj_law_run){.info = info,
                     .x = {model.parameters, model.active_parameters, model.layers,
                           model.hidden_size, model.intermediate_size, batch,
                           (double)info->input_tokens / batch, (double)info->output_tokens / batch},
                     .joules = info->output_tokens
                                   ? pj_typical_request_mj(info) / 1e3 / (double)info->output_tokens
                                   : NAN};
    memcpy(r->attention, model.attention, sizeof r->attention);
    r->settings = hash_text(info->threads * 8u + info->quality, info->dtype);
    r->settings = hash_text(r->settings, info->scope ? info->scope : "machine");
    r->settings = hash_text(r->settings, info->total_rails);
    if (pj_run_field(info, "device", device, sizeof device))
        r->settings = hash_text(r->settings, device);
    return r->joules > 0 && info->engine && strcmp(info->engine, "perjoule") == 0 &&
           !pj_run_is_disturbed(info) && !pj_run_is_ablated(info);
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* Whether a law's variable is of a model's shape, rather than a setting. */
static bool laws_of_models(figure over)
{
    return over <= FFN_WIDTH;
}

/* Whether all but the law's variable is equal in two models' shapes. The size varies with any of
 * it, and the width of the FFN with the hidden size. */
static bool alike_in_shape(const pj_law_run *a, const pj_law_run *b, figure over)
{
    if (over < LAYERS) return true;
    for (int f = LAYERS; f <= FFN_WIDTH; f++) {
        bool follows = over == HIDDEN && f == FFN_WIDTH;
        if (f != (int)over && !follows && a->x[f] != b->x[f]) return false;
    }
    return true;
}

/* Whether two runs differ at most in the law's variable. Laws over the shape of a model compare
 * models; the others keep the model fixed. */
static bool laws_is_alike(const pj_law_run *a, const pj_law_run *b, figure over)
{
    bool models = laws_of_models(over);
    if (a->settings != b->settings) return false;
    if (models && !alike_in_shape(a, b, over)) return false;
    if (!models && (!a->info->model_name || !b->info->model_name ||
                    strcmp(a->info->model_name, b->info->model_name) != 0))
        return false;
    for (int f = BATCH; f < FIGURES; f++)
        if (f != (int)over && a->x[f] != b->x[f]) return false;
    return true;
}

static bool is_same_point(const pj_law_run *a, const pj_law_run *b, figure over)
{
    if (!laws_of_models(over)) return a->x[over] == b->x[over];
    const char *x = a->info->model_name, *y = b->info->model_name;
    return x && y && strcmp(x, y) == 0;
}

static void add_to_set(pj_run_law *s, const pj_law_run *r, figure over)
{
    uint32_t i = 0;
    while (i < s->count && !is_same_point(s->of[i], r, over)) i++;
    if (i == PJ_LAW_POINTS) return;
    if (i == s->count) {
        s->points[i] = (pj_law_point){r->x[over], 0};
        s->of[i] = r;
        s->runs[i] = 0;
        s->count++;
    }
    s->runs[i]++;
    s->points[i].y += log(r->joules); /* the mean logarithm until close_set */
}

static void close_set(pj_run_law *s)
{
    for (uint32_t i = 0; i < s->count; i++) s->points[i].y = exp(s->points[i].y / s->runs[i]);
}

/* The set with the most points; on ties the one with the newest run. */
static void laws_choose(const pj_law_run *rows, uint32_t count, figure over, pj_run_law *best,
                        pj_run_law *scratch)
{
    best->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < i && !seen; k++) seen = laws_is_alike(&rows[k], &rows[i], over);
        if (seen) continue;
        scratch->count = 0;
        for (uint32_t k = i; k < count; k++)
            if (rows[k].x[over] > 0 && laws_is_alike(&rows[i], &rows[k], over))
                add_to_set(scratch, &rows[k], over);
        if (scratch->count > best->count) memcpy(best, scratch, sizeof *best);
    }
    close_set(best);
}

/* ---- the laws -------------------------------------------------------------------------------- */

static void fit_kinds(const pj_run_law *s, pj_laws *laws)
{
    pj_law_point points[PJ_LAW_POINTS];
    uint32_t kinds[PJ_LAW_POINTS];
    for (uint32_t i = 0; i < s->count; i++) {
        points[i] = (pj_law_point){1, s->points[i].y / (s->points[i].x / 1e9)};
        for (kinds[i] = 0; strcmp(s->of[kinds[i]]->attention, s->of[i]->attention) != 0; kinds[i]++)
            ;
    }
    laws->kinds_r2 = pj_law_of_kinds(points, kinds, s->count);
    if (isnan(laws->kinds_r2))
        laws->kinds_refusal = "fewer than three models, or of one kind of attention only";
    for (uint32_t i = 0; i < s->count; i++) {
        double sum = 0;
        uint32_t n = 0;
        for (uint32_t k = 0; k < s->count && kinds[i] == i; k++)
            if (kinds[k] == i) sum += log(points[k].y), n++;
        if (n)
            laws->kinds[laws->kind_count++] =
                (pj_attention_kind){s->of[i]->attention, n, exp(sum / n)};
    }
}

static pj_status laws_fit(pj_laws *laws, pj_error *err)
{
    pj_law_run *rows = pj_arena_alloc(&laws->arena, laws->list.count + 1, sizeof *rows);
    pj_run_law *scratch = pj_arena_alloc(&laws->arena, 1, sizeof *scratch);
    uint32_t count = 0;
    if (!rows || !scratch) return pj_fail_memory(err, "laws");
    for (uint32_t i = 0; i < laws->list.count; i++)
        count += laws_read_row(&laws->list.runs[i], &rows[count]);
    laws->run_count = count;
    for (int f = 0; f < FIGURES; f++) {
        pj_run_law *law = &laws->laws[f];
        laws_choose(rows, count, (figure)f, law, scratch);
        law->over = figures[f];
        pj_law_fit(law->points, law->count, &law->law);
    }
    fit_kinds(&laws->laws[ACTIVE_PARAMETERS], laws);
    return PJ_OK;
}

pj_status pj_laws_get(pj_store *store, const char *machine, pj_laws **out, pj_error *err)
{
    *out = NULL;
    pj_machine own;
    pj_laws *laws = pj_alloc(1, sizeof *laws);
    if (!laws) return pj_fail_memory(err, "laws");
    pj_arena_init(&laws->arena, 0);
    pj_status status = machine ? PJ_OK : pj_machine_read("", NULL, 0, &laws->arena, &own, err);
    laws->machine = machine ? machine : status == PJ_OK ? own.name : NULL;
    pj_run_query query = {
        .status = "completed", .machine = laws->machine, .engine = "perjoule", .limit = MOST_RUNS};
    if (status == PJ_OK) status = pj_store_list(store, &query, &laws->list, err);
    if (status == PJ_OK) status = laws_fit(laws, err);
    if (status == PJ_OK)
        *out = laws;
    else
        pj_laws_free(laws);
    return status;
}

void pj_laws_free(pj_laws *laws)
{
    if (!laws) return;
    pj_run_list_fini(&laws->list);
    pj_arena_fini(&laws->arena);
    pj_free(laws);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_held(pj_json *json, const pj_run_law *s, figure over)
{
    pj_json_key(json, "held");
    if (!s->count) {
        pj_json_null(json);
        return;
    }
    const pj_law_run *r = s->of[0];
    pj_json_object_begin(json);
    if (!laws_of_models(over)) pj_json_kv_string(json, "model", r->info->model_name);
    pj_json_kv_string(json, "dtype", r->info->dtype);
    pj_json_kv_uint(json, "threads", r->info->threads);
    pj_json_kv_string(json, "energy_source", pj_quality_name(r->info->quality));
    for (int f = BATCH; f < FIGURES; f++)
        if (f != (int)over) pj_json_kv_double(json, figures[f], r->x[f]);
    for (int f = LAYERS; f <= FFN_WIDTH && laws_of_models(over) && over >= LAYERS; f++)
        if (f != (int)over && !(over == HIDDEN && f == FFN_WIDTH))
            pj_json_kv_double(json, figures[f], r->x[f]);
    pj_json_object_end(json);
}

static void write_points(pj_json *json, const pj_run_law *s)
{
    pj_json_kv_array_begin(json, "points");
    for (uint32_t i = 0; i < s->count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "model", s->of[i]->info->model_name);
        pj_json_kv_double(json, "x", s->points[i].x);
        pj_json_kv_double(json, "joules_per_token", s->points[i].y);
        pj_json_kv_uint(json, "runs", s->runs[i]);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
}

static void write_law(pj_json *json, const pj_run_law *s, figure over)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "over", s->over);
    pj_json_kv_string(json, "refusal", s->law.refusal);
    pj_json_kv_double(json, "factor", s->law.factor);
    pj_json_kv_double(json, "exponent", s->law.exponent);
    pj_json_kv_double(json, "exponent_lo", s->law.exponent_lo);
    pj_json_kv_double(json, "exponent_hi", s->law.exponent_hi);
    pj_json_kv_double(json, "r2", s->law.r2);
    write_held(json, s, over);
    write_points(json, s);
    pj_json_object_end(json);
}

static void write_kinds(pj_json *json, const pj_laws *laws)
{
    pj_json_kv_object_begin(json, "attention");
    pj_json_kv_string(json, "refusal", laws->kinds_refusal);
    pj_json_kv_double(json, "r2", laws->kinds_r2);
    pj_json_kv_array_begin(json, "kinds");
    for (uint32_t i = 0; i < laws->kind_count; i++) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "attention", laws->kinds[i].attention);
        pj_json_kv_uint(json, "models", laws->kinds[i].models);
        pj_json_kv_double(json, "joules_per_token_per_billion", laws->kinds[i].joules_per_billion);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

void pj_laws_write(const pj_laws *laws, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "machine", laws->machine);
    pj_json_kv_uint(json, "runs", laws->run_count);
    pj_json_kv_array_begin(json, "laws");
    for (int f = 0; f < FIGURES; f++) write_law(json, &laws->laws[f], (figure)f);
    pj_json_array_end(json);
    write_kinds(json, laws);
    pj_json_object_end(json);
}

pj_status pj_insight_laws(pj_store *store, const char *machine, pj_json *json, pj_error *err)
{
    pj_laws *laws;
    pj_status status = pj_laws_get(store, machine, &laws, err);
    if (laws) pj_laws_write(laws, json);
    pj_laws_free(laws);
    return status;
}

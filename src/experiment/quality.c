/* Losses and scores by cell, stored as one JSON object. */
#include "experiment/quality.h"

#include "base/file.h"
#include "base/sha256.h"
#include "experiment/loss.h"
#include "experiment/scoring.h"
#include "store/experiments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 16 << 20 };

/* ---- what is stored -------------------------------------------------------------------------- */

static const char *quality_key(uint32_t cell, char key[16])
{
    snprintf(key, 16, "%u", cell);
    return key;
}

static const json_t *scores_of(const json_t *known)
{
    return json_object_get(known, "scores");
}

const json_t *pj_quality_loss(const json_t *known, uint32_t cell)
{
    char key[16];
    return json_object_get(known, quality_key(cell, key));
}

const char *pj_quality_outcomes(const json_t *known, uint32_t cell)
{
    char key[16];
    return json_string_value(json_object_get(scores_of(known), quality_key(cell, key)));
}

static pj_status quality_store(pj_quality *q, pj_error *err)
{
    char *text = json_dumps(q->known, JSON_COMPACT);
    if (!text) return pj_fail_memory(err, "an experiment");
    pj_status status = pj_store_experiment_set_quality(q->store, q->plan->name, text, err);
    free(text);
    return status;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* From the plan itself, or from a file. NULL: the plan names neither. */
static pj_status quality_read(const char *file, const char *text, char **out, size_t *bytes,
                              pj_error *err)
{
    *out = NULL;
    *bytes = 0;
    if (file && !text) return pj_file_read(file, MAX_BYTES, out, bytes, err);
    if (!text) return PJ_OK;
    *bytes = strlen(text);
    *out = pj_strdup(text);
    return *out ? PJ_OK : pj_fail_memory(err, "an experiment");
}

static const char *tasks_name(const pj_plan *plan)
{
    return plan->tasks_text ? "tasks_text" : plan->tasks;
}

static pj_status read_tasks(pj_quality *q, pj_error *err)
{
    char *text;
    size_t bytes;
    pj_status status = quality_read(q->plan->tasks, q->plan->tasks_text, &text, &bytes, err);
    if (status == PJ_OK && text) {
        status = pj_tasks_parse(text, bytes, tasks_name(q->plan), &q->arena, &q->tasks, err);
        pj_sha256_text(text, bytes, q->tasks_hash);
    }
    pj_free(text);
    return status;
}

pj_status pj_quality_open(pj_quality *q, const pj_plan *plan, pj_error *err)
{
    *q = (pj_quality){.plan = plan};
    pj_arena_init(&q->arena, 0);
    pj_status status = quality_read(plan->eval, plan->eval_text, &q->text, &q->bytes, err);
    return status == PJ_OK ? read_tasks(q, err) : status;
}

pj_status pj_quality_load(pj_quality *q, pj_store *store, pj_error *err)
{
    const char *plan, *known = NULL;
    q->store = store;
    pj_status status = pj_store_experiment_get(store, q->plan->name, &q->arena, &plan, &known, err);
    q->known = known ? json_loads(known, 0, NULL) : NULL;
    if (!q->known) q->known = json_object();
    const char *hash = json_string_value(json_object_get(scores_of(q->known), "tasks"));
    if (status == PJ_OK && hash && q->tasks.count && strcmp(hash, q->tasks_hash) != 0)
        return pj_fail(err, PJ_E_INVALID,
                       "the tasks of %.200s have changed since the experiment %.200s scored them; "
                       "choose another name",
                       tasks_name(q->plan), q->plan->name);
    return status;
}

void pj_quality_close(pj_quality *q)
{
    json_decref(q->known);
    q->known = NULL;
    pj_free(q->text);
    q->text = NULL;
    pj_arena_fini(&q->arena);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Not for ablated cells, whose quality is not the model's. */
static bool lacks_loss(const pj_quality *q, uint32_t cell)
{
    return q->text && pj_plan_whole_cell(q->plan, cell) == cell && !pj_quality_loss(q->known, cell);
}

static bool lacks_score(const pj_quality *q, uint32_t cell)
{
    return q->tasks.count && pj_plan_whole_cell(q->plan, cell) == cell &&
           !pj_quality_outcomes(q->known, cell);
}

bool pj_quality_is_open(const pj_quality *q, uint32_t cell)
{
    return lacks_loss(q, cell) || lacks_score(q, cell);
}

/* The next cell from `from` on with the same model and type of weights; UINT32_MAX: none. */
static uint32_t next_alike(const pj_plan *plan, uint32_t cell, uint32_t from)
{
    pj_cell mine, other;
    pj_plan_cell(plan, cell, &mine);
    for (uint32_t i = from, count = pj_plan_cells(plan); i < count; i++) {
        pj_plan_cell(plan, i, &other);
        if (strcmp(mine.model, other.model) == 0 && strcmp(mine.dtype, other.dtype) == 0) return i;
    }
    return UINT32_MAX;
}

static pj_status measure_loss(pj_quality *q, pj_engine *engine, uint32_t cell, pj_error *err)
{
    char key[16];
    double loss = NAN;
    for (uint32_t i = next_alike(q->plan, cell, 0); i != UINT32_MAX && isnan(loss);
         i = next_alike(q->plan, cell, i + 1)) {
        const json_t *value = pj_quality_loss(q->known, i);
        if (value) loss = json_number_value(value);
    }
    pj_status status = PJ_OK;
    if (isnan(loss)) status = pj_profile_loss(engine, q->text, q->bytes, &loss, err);
    if (status != PJ_OK) return status;
    json_object_set_new(q->known, quality_key(cell, key), json_real(loss));
    return quality_store(q, err);
}

static pj_status set_outcomes(pj_quality *q, uint32_t cell, const char *outcomes, pj_error *err)
{
    char key[16];
    json_t *scores = json_object_get(q->known, "scores");
    if (!scores) {
        scores = json_object();
        json_object_set_new(scores, "tasks", json_string(q->tasks_hash));
        json_object_set_new(q->known, "scores", scores);
    }
    json_object_set_new(scores, quality_key(cell, key), json_string(outcomes));
    return quality_store(q, err);
}

static pj_status measure_score(pj_quality *q, pj_engine *engine, uint32_t cell,
                               const _Atomic bool *cancel, pj_error *err)
{
    const char *known = NULL;
    for (uint32_t i = next_alike(q->plan, cell, 0); i != UINT32_MAX && !known;
         i = next_alike(q->plan, cell, i + 1))
        known = pj_quality_outcomes(q->known, i);
    if (known) return set_outcomes(q, cell, known, err);
    char *outcomes = pj_alloc(q->tasks.count + 1, 1);
    if (!outcomes) return pj_fail_memory(err, "the tasks");
    pj_status status =
        pj_tasks_score(engine, &q->tasks, tasks_name(q->plan), cancel, outcomes, err);
    if (status == PJ_OK) status = set_outcomes(q, cell, outcomes, err);
    pj_free(outcomes);
    return status;
}

pj_status pj_quality_measure(pj_quality *q, pj_engine *engine, uint32_t cell,
                             const _Atomic bool *cancel, pj_error *err)
{
    pj_status status = lacks_loss(q, cell) ? measure_loss(q, engine, cell, err) : PJ_OK;
    if (status != PJ_OK || !lacks_score(q, cell)) return status;
    return measure_score(q, engine, cell, cancel, err);
}

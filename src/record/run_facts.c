/* Facts of an open run that become known while it runs. */
#include "record/run_parts.h"

#include "base/sized.h"

#include <stddef.h>
#include <string.h>

void pj_run_set_prompts(pj_run *run, const uint32_t *tokens, uint32_t count)
{
    if (!run || (count && !tokens)) return;
    uint32_t *copy = pj_arena_alloc(&run->arena, (size_t)count + 1, sizeof *copy);
    uint64_t sum = 0;
    if (!copy) return; /* shared steps are then split as if lengths were unknown */
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = tokens[i];
        sum += tokens[i];
    }
    pthread_mutex_lock(&run->spool_mutex);
    run->info.prompt_tokens = copy;
    run->info.prompt_count = count;
    run->info.input_tokens = sum;
    pthread_mutex_unlock(&run->spool_mutex);
    pj_run_append_info(run, NULL);
}

void pj_run_set_tokens(pj_run *run, uint64_t input_tokens, uint64_t output_tokens)
{
    if (!run) return;
    pthread_mutex_lock(&run->spool_mutex);
    /* the largest numbers that the spool and the database can store */
    run->info.input_tokens = input_tokens < INT64_MAX ? input_tokens : INT64_MAX;
    run->info.output_tokens = output_tokens == PJ_NO_TOKENS            ? PJ_GENERATES_NO_TOKENS
                              : output_tokens < PJ_GENERATES_NO_TOKENS ? output_tokens
                                                                       : PJ_GENERATES_NO_TOKENS - 1;
    pthread_mutex_unlock(&run->spool_mutex);
    pj_run_append_info(run, NULL);
}

void pj_run_add_cpu(pj_run *run, double seconds)
{
    if (seconds > 0) run->observed_cpu_ms += seconds * 1e3;
}

void pj_run_set_process_energy(pj_run *run, double mj)
{
    run->info.process_mj = mj;
    run->counts.process_mj = NAN; /* this process is not the one */
}

void pj_run_set_engine(pj_run *run, const char *engine)
{
    bool failed = false;
    const char *kept = pj_run_keep_text(run, engine, &failed);
    if (!failed) run->info.engine = kept;
    pj_run_append_info(run, NULL);
}

pj_status pj_run_set_weight(pj_run *run, double weight, pj_error *err)
{
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_run_set_weight: run is NULL");
    if (!pj_run_is_weight(weight))
        return pj_fail(err, PJ_E_INVALID, "weight must be at least 0 and below 1e12, not %g",
                       weight);
    if (run->metering) pj_reading_hub_weigh(run->session->hub, &run->subscriber, weight);
    return PJ_OK;
}

static void announce_model(const pj_run *run)
{
    const pj_live_sink *sink = &run->session->sinks.all;
    pj_live_run live = pj_run_live(run);
    if (sink->run_model) sink->run_model(sink->context, &live);
}

static bool run_facts_is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !word || !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

pj_status pj_run_describe(pj_run *run, const pj_run_facts *from, pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_run_facts, repeat_index) + sizeof(uint32_t) };
    bool failed = false;
    pj_run_facts checked, *facts = &checked;
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_run_describe: run is NULL");
    pj_status status = PJ_SIZED_READ(pj_run_facts, &checked, from, SIZE_0_1, err);
    if (status != PJ_OK) return status;
    if (facts->model_json && !pj_run_is_json_object(facts->model_json))
        return pj_fail(err, PJ_E_INVALID, "model_json is not a JSON object");
    if (facts->settings_json && !pj_run_is_json_object(facts->settings_json))
        return pj_fail(err, PJ_E_INVALID, "settings_json is not a JSON object");
    if (facts->batch_rule && pj_batch_rule_parse(facts->batch_rule) < 0)
        return pj_fail(err, PJ_E_INVALID, "batch_rule must be bytes, tokens or equal, not %.40s",
                       facts->batch_rule);
    if (!run_facts_is_one_of(facts->scope, "machine", "process", "request"))
        return pj_fail(err, PJ_E_INVALID, "scope must be machine, process or request, not %.40s",
                       facts->scope);
    if (!run_facts_is_one_of(facts->level, "coarse", "fine", "fine"))
        return pj_fail(err, PJ_E_INVALID, "level must be coarse or fine, not %.40s", facts->level);
    pj_run_info *info = &run->info;
    const struct {
        const char *from, **to;
    } texts[] = {{facts->model_name, &info->model_name},
                 {facts->model_path, &info->model_path},
                 {facts->dtype, &info->dtype},
                 {facts->isa, &info->isa},
                 {facts->model_json, &info->model_json},
                 {facts->repeat_group, &info->repeat_group},
                 {facts->settings_json, &info->settings_json},
                 {facts->batch_rule, &info->batch_rule},
                 {facts->scope, &info->scope},
                 {facts->level, &info->level}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].from) *texts[i].to = pj_run_keep_text(run, texts[i].from, &failed);
    if (facts->threads) info->threads = facts->threads;
    if (facts->layer_count) run->layer_count = facts->layer_count;
    if (facts->batch_size) info->batch_size = facts->batch_size;
    if (facts->repeat_index) info->repeat_index = facts->repeat_index;
    if (failed) return pj_fail_memory(err, "the facts of a run");
    announce_model(run);
    return pj_run_append_info(run, err);
}

pj_status pj_run_set_private(pj_run *run, const char *prompt, const char *output, pj_error *err)
{
    bool failed = false;
    if (prompt) run->info.prompt_private = pj_run_keep_text(run, prompt, &failed);
    if (output) run->info.output_private = pj_run_keep_text(run, output, &failed);
    return failed ? pj_fail_memory(err, "the facts of a run") : pj_run_append_info(run, err);
}

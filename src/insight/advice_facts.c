/* Facts for advice from the run itself: its classes of work, model, machine and conditions. */
#include "insight/advice.h"

#include "base/median.h"
#include "base/shell.h"
#include "store/class_sums.h"
#include "store/views.h"
#include "trace/device.h"
#include "trace/device_conditions.h"
#include "trace/json_member.h"
#include "trace/model_figures.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT_MAX = 100, MODEL_MAX = 300, LEAST_TO_RISE = 60 };

/* ---- classes of work ------------------------------------------------------------------------ */

static bool advice_facts_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool reads_weights(const char *name)
{
    static const char *const others[] = {
        "lm_head", "experts", "fc1", "fc2",          "router",        "dense",
        "w1",      "w2",      "w3",  "input_linear", "output_linear", "kv_a_proj_with_mqa",
        "wq_b",    "wk"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return true;
    return advice_facts_ends_with(name, "_proj") || strncmp(name, "in_proj_", 8) == 0;
}

static bool is_head(const char *name)
{
    return strcmp(name, "lm_head") == 0 || strcmp(name, "embed_tokens") == 0;
}

static double plus(double sum, double value)
{
    return isnan(value) ? sum : sum + value;
}

/* Parts of one kind are uncertain together: what is not known of one is not made up by another. */
static void add_part(double *mj, double *sd_mj, const pj_class_sum *c, double gain)
{
    if (isnan(c->energy_mj)) return;
    double common = gain * c->energy_mj, sd = c->energy_sd_mj * c->energy_sd_mj - common * common;
    *mj += c->energy_mj;
    *sd_mj += sd > 0 ? sqrt(sd) : 0;
}

/* Of a class of decode, of which `times` as many steps were computed as had it timed. */
static pj_class_sum scaled(const pj_class_sum *c, double times)
{
    pj_class_sum all = *c;
    all.energy_mj *= times;
    all.energy_sd_mj *= times;
    all.flops *= times;
    all.bytes *= times;
    return all;
}

static void add_decode(pj_advice_facts *f, const pj_class_sum *c, double gain)
{
    bool weights = reads_weights(c->name);
    f->decode_flops = plus(f->decode_flops, c->flops);
    f->decode_bytes = plus(f->decode_bytes, c->bytes);
    if (weights) {
        f->weight_bytes = plus(f->weight_bytes, c->bytes);
        add_part(&f->matrix_mj, &f->matrix_sd, c, gain);
    }
    if (strcmp(c->name, PJ_CONTEXT_COMPONENT) == 0) {
        f->cache_bytes = plus(f->cache_bytes, c->bytes);
        add_part(&f->attention_mj, &f->attention_sd, c, gain);
    }
    if (is_head(c->name)) add_part(&f->head_mj, &f->head_sd, c, gain);
}

static void add_prefill(pj_advice_facts *f, const pj_class_sum *c)
{
    f->prefill_flops = plus(f->prefill_flops, c->flops);
    if (reads_weights(c->name)) f->prefill_matrix_mj = plus(f->prefill_matrix_mj, c->energy_mj);
    if (strcmp(c->name, PJ_CONTEXT_COMPONENT) == 0)
        f->prefill_attention_mj = plus(f->prefill_attention_mj, c->energy_mj);
    if (is_head(c->name)) f->prefill_head_mj = plus(f->prefill_head_mj, c->energy_mj);
}

/* Decode steps for each one that was not left out of what a recorder times (docs/python.md). */
static double steps_per_timed(const pj_run_info *info, const json_t *settings, const char *left_out)
{
    double batch = info->batch_size ? info->batch_size : 1;
    double steps = (double)info->output_tokens / batch - 1; /* a prompt's pass yields the first */
    double timed = steps - pj_member_number(settings, left_out);
    return timed > 0 ? steps / timed : 1;
}

static pj_status read_classes(pj_store *store, const pj_run_info *info, pj_arena *arena,
                              pj_advice_facts *f, pj_error *err)
{
    pj_class_sum *sums;
    uint32_t count;
    const char *ids[] = {info->id};
    pj_status status = pj_store_class_sums(store, ids, 1, arena, &sums, &count, err);
    double gain = (double)info->total_sd.gain_mj / info->total_mj;
    json_t *settings = info->settings_json ? json_loads(info->settings_json, 0, NULL) : NULL;
    double of_parts = steps_per_timed(info, settings, "steps_without_parts");
    double of_outer = steps_per_timed(info, settings, "steps_without_layers");
    json_decref(settings);
    for (uint32_t i = 0; i < count && status == PJ_OK; i++) {
        pj_class_sum all = scaled(&sums[i], is_head(sums[i].name) ? of_outer : of_parts);
        if (sums[i].phase == PJ_PHASE_DECODE) add_decode(f, &all, isfinite(gain) ? gain : 0);
        if (sums[i].phase == PJ_PHASE_PREFILL) add_prefill(f, &sums[i]);
    }
    f->matrix_sd /= f->matrix_mj;
    f->head_sd /= f->head_mj;
    f->attention_sd /= f->attention_mj;
    return status;
}

/* ---- model, machine, conditions ------------------------------------------------------------- */

static void advice_facts_read_model(const pj_run_info *info, pj_arena *arena, pj_advice_facts *f)
{
    pj_model_figures model;
    pj_model_figures_read(info->model_json, &model);
    f->model_bytes = model.weight_bytes;
    f->kv_bytes_per_token = model.kv_bytes_per_token;
    f->context = model.context;
    f->kv_type =
        model.kv_type[0] ? pj_arena_strndup(arena, model.kv_type, strlen(model.kv_type)) : NULL;
}

/* Quoted for a shell; NULL if it is too long or has control characters. */
static const char *shell_word(const char *text, size_t longest, pj_arena *arena)
{
    pj_buffer out;
    if (!text || !*text || strlen(text) > longest) return NULL;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') return NULL;
    pj_buffer_init(&out, 4 * longest + 3);
    pj_shell_word(&out, text);
    const char *word = pj_arena_strndup(arena, pj_buffer_get(&out), out.length);
    pj_buffer_fini(&out);
    return word;
}

/* Of the processor, which computed. */
static void advice_facts_read_machine(const pj_run_info *info, pj_advice_facts *f)
{
    json_t *machine = info->machine_json ? json_loads(info->machine_json, 0, NULL) : NULL;
    f->memory_bytes = pj_member_number(machine, "memory_bytes");
    f->processor_cache_bytes = pj_member_number(machine, "cache_bytes");
    f->read_bytes_per_s =
        1e9 * pj_member_number(json_object_get(machine, "limits"), "read_gbytes_per_s");
    json_decref(machine);
}

/* The limits of what computed: with several devices, nothing is known of them together. */
static void advice_facts_read_device(const pj_run_info *info, pj_arena *arena, pj_advice_facts *f)
{
    pj_device_row devices[PJ_MAX_DEVICES];
    const pj_device_row *found = NULL;
    uint32_t others = 0, count = pj_devices_read(info->devices_json, arena, devices);
    double host_mj = NAN, all_mj = 0;
    for (uint32_t i = 0; i < count; i++) {
        all_mj += devices[i].net_energy_mj;
        if (devices[i].number == PJ_HOST) host_mj = devices[i].net_energy_mj;
        if (devices[i].number == PJ_HOST) continue;
        found = &devices[i];
        others++;
    }
    if (others == 0) {
        advice_facts_read_machine(info, f);
        return;
    }
    if (all_mj > 0) f->host_share = host_mj / all_mj;
    f->device = shell_word(found->name, MODEL_MAX, arena);
    f->memory_bytes = others == 1 ? found->memory_bytes : NAN;
    f->processor_cache_bytes = f->read_bytes_per_s = NAN;
    json_t *limits = others == 1 && found->limits ? json_loads(found->limits, 0, NULL) : NULL;
    f->read_bytes_per_s = 1e9 * pj_member_number(limits, "read_gbytes_per_s");
    json_decref(limits);
}

/* A device's power limit can be compared with the total only if it is the only device. */
static void read_conditions(const pj_run_info *info, pj_advice_facts *f)
{
    pj_device_conditions devices[PJ_DEVICES_MAX];
    uint32_t limits = 0, count = pj_device_conditions_read(info->conditions_json, devices);
    f->throttled_share = f->power_limit_mw = NAN;
    for (uint32_t i = 0; i < count; i++) {
        f->throttled_share = fmax(f->throttled_share, devices[i].throttled_share);
        if (isnan(devices[i].power_limit_mw)) continue;
        f->power_limit_mw = devices[i].power_limit_mw;
        limits++;
    }
    if (limits != 1) f->power_limit_mw = NAN;
    f->power_mw = info->decode_mj / info->decode_ms * 1000;
}

/* ---- tokens over the run -------------------------------------------------------------------- */

/* Relative 1 sigma without the gain, which cancels in shares. */
static double without_gain(const pj_run_info *info, double mj, double sd_mj)
{
    double gain = (double)info->total_sd.gain_mj / info->total_mj, all = sd_mj / mj;
    if (!isfinite(all)) return 0;
    return sqrt(fmax(all * all - (isfinite(gain) ? gain * gain : 0), 0));
}

/* Median of a third of the tokens. Its relative variance, which is added, is that of how they
 * scatter and that of one of them, since tokens of a window are wrong alike. */
static double third_of(const double *mj, size_t count, double token_sd, double *work,
                       double *relative_var)
{
    double scatter = pj_median_sd(mj, count, count, work);
    memcpy(work, mj, count * sizeof *mj);
    double median = pj_median(work, count);
    *relative_var += scatter / median * (scatter / median) + token_sd * token_sd;
    return median;
}

/* Attention reads the context, which grows evenly; the rest of a step is always the same. */
static double rise_by_context(const pj_advice_facts *f)
{
    double share = f->attention_mj > 0 ? fmin(f->attention_mj / f->decode_mj, 1) : 0;
    double begin = (double)f->input_tokens, grown = (double)f->output_tokens;
    double middle = begin + grown / 2, per_token = share / middle;
    return (1 + per_token * (begin + grown * 5 / 6 - middle)) /
           (1 + per_token * (begin + grown / 6 - middle));
}

static pj_status read_rise(pj_store *store, const pj_run_info *info, pj_arena *arena,
                           pj_advice_facts *f, pj_error *err)
{
    pj_token_series tokens;
    size_t known = 0;
    f->rise = f->rise_sd = f->rise_explained = NAN;
    if (f->batch > 1 || f->refusal) return PJ_OK;
    pj_status status = pj_view_token_series(store, info->id, arena, &tokens, err);
    if (status != PJ_OK || tokens.count < LEAST_TO_RISE) return status;
    double *mj = pj_arena_alloc(arena, 4 * (size_t)tokens.count, sizeof *mj), relative_var = 0;
    if (!mj) return pj_fail_memory(err, "the facts for advice");
    double *work = mj + tokens.count, *sd = mj + 3 * (size_t)tokens.count;
    for (uint32_t i = 0; i < tokens.count; i++) {
        if (!isfinite(tokens.energy_mj[i])) continue;
        sd[known] = without_gain(info, tokens.energy_mj[i], tokens.energy_sd_mj[i]);
        mj[known++] = tokens.energy_mj[i];
    }
    size_t third = known / 3;
    if (known < LEAST_TO_RISE) return PJ_OK;
    double first = third_of(mj, third, sd[third / 2], work, &relative_var);
    double last = third_of(mj + known - third, third, sd[known - third / 2], work, &relative_var);
    if (!(first > 0)) return PJ_OK;
    f->rise = last / first;
    f->rise_sd = f->rise * sqrt(relative_var);
    f->rise_explained = rise_by_context(f);
    return PJ_OK;
}

/* ---- the run -------------------------------------------------------------------------------- */

/* Prompts given as token ids are kept as "1,2,3". */
static bool is_ids(const char *prompt)
{
    return prompt && strchr(prompt, ',') && prompt[strspn(prompt, "0123456789,")] == 0;
}

/* A figure of a phase less what was disturbance in it, if that was judged. */
static double less(double figure, double disturbed)
{
    return disturbed > 0 ? figure - disturbed : figure;
}

static const char *model_word(const pj_run_info *info, pj_arena *arena)
{
    const char *word =
        shell_word(info->model_path ? info->model_path : info->model_name, MODEL_MAX, arena);
    return word ? word : "MODEL";
}

static bool advice_facts_is_elsewhere(const pj_run_info *info)
{
    return !info->engine || strcmp(info->engine, "perjoule") != 0;
}

/* Savings are promised on what sensors saw of all that computes. */
static const char *advice_facts_refusal(const pj_run_info *info, pj_arena *arena)
{
    char text[300];
    if (info->status != PJ_RUN_COMPLETED) return "the run did not complete";
    if (advice_facts_is_elsewhere(info) && (!info->level || strcmp(info->level, "fine") != 0))
        return "nothing is known of the parts of what another engine computed";
    if (info->quality == PJ_MODELLED) return "the run's energy is modelled, not measured";
    if (!info->partial_rails || !*info->partial_rails) return NULL;
    snprintf(text, sizeof text, "the run's energy lacks %.200s", info->partial_rails);
    const char *kept = pj_arena_strndup(arena, text, strlen(text));
    return kept ? kept : "the run's energy is partial";
}

static void read_info(const pj_run_info *info, pj_arena *arena, pj_advice_facts *f)
{
    *f = (pj_advice_facts){
        .run_id = info->id,
        .model = model_word(info, arena),
        .dtype = info->dtype,
        .prompt = shell_word(info->prompt, PROMPT_MAX, arena),
        .prompt_is_ids = is_ids(info->prompt),
        .is_elsewhere = advice_facts_is_elsewhere(info),
        .refusal = advice_facts_refusal(info, arena),
        .has_energy = info->quality != PJ_UNAVAILABLE && isfinite(info->request_mj),
        .input_tokens = info->input_tokens,
        .output_tokens = info->output_tokens,
        .batch = info->batch_size ? info->batch_size : 1,
        .threads = info->threads,
        .request_mj = info->request_mj,
        .total_mj = info->total_mj,
        .load_mj = info->model_load_mj,
        .load_sd = without_gain(info, info->model_load_mj, info->model_load_sd_mj),
        .prefill_mj = less(info->prefill_mj, info->prefill_disturbed.mj),
        .decode_mj = less(info->decode_mj, info->decode_disturbed.mj),
        .prefill_ms = less(info->prefill_ms, info->prefill_disturbed.ms),
        .decode_ms = less(info->decode_ms, info->decode_disturbed.ms),
        .relative_sd = without_gain(info, info->request_mj, info->request_sd_mj),
        .idle_mw =
            isnan(info->baseline_resident_mw) ? info->baseline_cold_mw : info->baseline_resident_mw,
        .parameters = info->parameters,
        .disturbed_share = info->disturbed_share,
        .interval = info->attribution_interval,
        .interval_calibrated = info->attribution_interval_calibrated,
        .g_per_kwh = NAN,
        .host_share = NAN,
    };
}

pj_status pj_advice_facts_get(pj_store *store, const pj_run_info *info, pj_arena *arena,
                              pj_advice_facts *f, pj_error *err)
{
    read_info(info, arena, f);
    advice_facts_read_model(info, arena, f);
    advice_facts_read_device(info, arena, f);
    read_conditions(info, f);
    pj_status status = read_classes(store, info, arena, f, err);
    if (status == PJ_OK) status = read_rise(store, info, arena, f, err);
    if (status == PJ_OK) status = pj_advice_facts_neighbours(store, info, arena, f, err);
    return status;
}

/* Names of enumeration values as in the database and the API. */
#include "trace/phases.h"
#include "trace/summary.h"

#include <string.h>

static const char *const phase_names[PJ_PHASE_COUNT] = {
#define X(ID, name) [PJ_PHASE_##ID] = name,
    PJ_PHASES(X)
#undef X
};

const char *pj_phase_name(pj_phase phase)
{
    return (unsigned)phase < PJ_PHASE_COUNT ? phase_names[phase] : "unknown";
}

int pj_phase_parse(const char *name)
{
    for (int i = 0; i < PJ_PHASE_COUNT; i++)
        if (strcmp(phase_names[i], name) == 0) return i;
    return -1;
}

/* ---- names of a run's facts ---------------------------------------------------------------- */

static const char *const status_names[] = {"running",   "completed",   "failed",
                                           "cancelled", "interrupted", NULL};
static const char *const depth_names[] = {"off", "module", "deep", NULL};
static const char *const quality_names[] = {"unavailable", "modelled", "measured", NULL};
static const char *const method_names[] = {"none",   "integrate", "fit",
                                           "replay", "allocated", "time"};

static const char *const absence_names[] = {"", "no_sensor", "sensor_gap", "below_resolution",
                                            NULL};

static int names_find(const char *const *names, const char *name)
{
    for (int i = 0; name && names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

const char *pj_run_status_name(pj_run_status status)
{
    if ((int)status == PJ_RUN_QUEUED) return "queued";
    return (unsigned)status <= PJ_RUN_INTERRUPTED ? status_names[status] : "unknown";
}

const char *pj_depth_name(pj_depth depth)
{
    return (unsigned)depth <= PJ_DEPTH_DEEP ? depth_names[depth] : "unknown";
}

const char *pj_quality_name(pj_source_quality quality)
{
    return (unsigned)quality <= PJ_MEASURED ? quality_names[quality] : "unknown";
}

const char *pj_method_name(pj_method method)
{
    return (unsigned)method <= PJ_METHOD_TIME ? method_names[method] : "unknown";
}

const char *pj_absence_name(pj_absence absence)
{
    return (unsigned)absence <= PJ_ABSENT_BELOW_RESOLUTION ? absence_names[absence] : "unknown";
}

const char *pj_absence_text(const char *name)
{
    switch (names_find(absence_names, name)) {
    case PJ_ABSENT_SENSOR_GAP: return "a sensor gave no readings for part of the run";
    case PJ_ABSENT_BELOW_RESOLUTION: return "the run was shorter than the sensors can resolve";
    default: return "no sensor measured it"; /* others may have measured other devices */
    }
}

int pj_run_status_parse(const char *name)
{
    return names_find(status_names, name);
}

int pj_depth_parse(const char *name)
{
    return names_find(depth_names, name);
}

int pj_quality_parse(const char *name)
{
    return names_find(quality_names, name);
}

/* Whether a name of no list, such as a kernel's, contains one of the words. */
static bool names_contain(const char *const *words, const char *name)
{
    for (int i = 0; name && words[i]; i++)
        if (strstr(name, words[i])) return true;
    return false;
}

pj_part pj_component_part(const char *name)
{
    static const char *const attention[] = {"q_proj",
                                            "k_proj",
                                            "v_proj",
                                            "o_proj",
                                            "qkv_proj",
                                            "dense",
                                            "q_norm",
                                            "k_norm",
                                            "attention",
                                            "rope",
                                            "c_attn",
                                            "self_attn",
                                            "output_gate",
                                            "in_proj_qkv",
                                            "in_proj_z",
                                            "in_proj_b",
                                            "in_proj_a",
                                            "conv1d",
                                            "delta_rule",
                                            "out_proj",
                                            "linear_attn",
                                            "q_a_proj",
                                            "q_b_proj",
                                            "kv_a_proj_with_mqa",
                                            "k_b_proj",
                                            "v_b_proj",
                                            "in_proj",
                                            "in_proj_xbc",
                                            "in_proj_dt",
                                            "scan",
                                            "conv",
                                            "qk_norm",
                                            "wq_b",
                                            "wk",
                                            "weights_proj",
                                            "indexer",
                                            "ssm_in_multiplier",
                                            "ssm_multipliers",
                                            "attention_in_multiplier",
                                            NULL};
    static const char *const mlp[] = {"gate_proj",
                                      "up_proj",
                                      "gate_up_proj",
                                      "act",
                                      "down_proj",
                                      "fc1",
                                      "fc2",
                                      "router",
                                      "experts",
                                      "mlp",
                                      "shared_expert",
                                      "shared_expert_gate",
                                      "w1",
                                      "w2",
                                      "w3",
                                      "input_linear",
                                      "output_linear",
                                      "fc1_latent_proj",
                                      "fc2_latent_proj",
                                      NULL};
    const char *last = name ? strrchr(name, '+') : NULL;
    if (last) return pj_component_part(last + 1); /* of several steps: norms come first */
    if (names_find(attention, name) >= 0) return PJ_PART_ATTENTION;
    if (names_find(mlp, name) >= 0) return PJ_PART_MLP;
    static const char *const attention_kernels[] = {"flash", "fmha",   "attention", "attn",
                                                    "rope",  "rotary", NULL};
    static const char *const mlp_kernels[] = {"silu", "gelu", "swiglu", "act_and_mul", "moe", NULL};
    if (name && (strstr(name, "norm") || strncmp(name, "ln_", 3) == 0)) return PJ_PART_NORM;
    if (names_contain(attention_kernels, name)) return PJ_PART_ATTENTION;
    if (names_contain(mlp_kernels, name)) return PJ_PART_MLP;
    return PJ_PART_OTHER;
}

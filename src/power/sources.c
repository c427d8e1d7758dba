/* The table of power sources, their environment settings, and the --power list. Adding a source
 * takes one file, one line here, and its name where docs/design.md says. */
#include "power/source.h"

#include "base/file.h"
#include "base/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const pj_power_source pj_source_estimate, pj_source_hwmon, pj_source_ioreport,
    pj_source_nvml, pj_source_perjoule, pj_source_powermetrics, pj_source_rapl, pj_source_replay,
    pj_source_sim;

const pj_power_source *const pj_power_sources[] = {
    &pj_source_rapl,         &pj_source_nvml,
    &pj_source_hwmon,        &pj_source_ioreport,
    &pj_source_powermetrics, &pj_source_estimate,
    &pj_source_perjoule,     &pj_source_replay,
    &pj_source_sim,          NULL,
};

const pj_power_source *pj_power_source_find(const char *name, size_t length)
{
    for (const pj_power_source *const *s = pj_power_sources; *s; s++)
        if (strlen((*s)->name) == length && strncmp((*s)->name, name, length) == 0) return *s;
    return NULL;
}

bool pj_rail_is_model(const pj_rail *rail)
{
    const pj_power_source *source = pj_power_source_find(rail->source, strlen(rail->source));
    return source && source->flags & PJ_SOURCE_MODEL;
}

/* ---- environment ---- */

static const char *environment_or(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

static const char *user_cache_folder(void)
{
    static char folder[1024];
    return pj_path_user_cache(folder, sizeof folder) ? folder : NULL;
}

void pj_power_env_get(pj_power_env *env)
{
    *env = (pj_power_env){
        .sysfs_root = environment_or("PERJOULE_SYSFS", ""),
        .procfs_root = environment_or("PERJOULE_PROCFS", ""),
        .nvml_library = environment_or("PERJOULE_NVML", NULL),
        .ioreport_library = environment_or("PERJOULE_IOREPORT", NULL),
        .powermetrics = environment_or("PERJOULE_POWERMETRICS", NULL),
        .visible_devices = getenv("CUDA_VISIBLE_DEVICES"), /* empty means: none visible */
        .cache_folder = user_cache_folder(),
    };
}

const char *pj_power_default(void)
{
    const char *list = getenv("PERJOULE_POWER");
    return list && *list ? list : "auto";
}

/* ---- the list ---- */

static bool list_has(const pj_power_list *list, const pj_power_source *source)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->choices[i].source == source) return true;
    return false;
}

/* A source is listed once at most, so that there is always room. */
static void list_add(pj_power_list *list, const pj_power_source *source, bool by_name)
{
    _Static_assert(sizeof pj_power_sources / sizeof *pj_power_sources <= PJ_POWER_LIST_MAX + 1,
                   "a list has room for all sources");
    list->choices[list->count++] = (pj_power_choice){.source = source, .by_name = by_name};
}

static void list_add_auto(pj_power_list *list)
{
    for (const pj_power_source *const *s = pj_power_sources; *s; s++)
        if (!((*s)->flags & PJ_SOURCE_BY_NAME) && !list_has(list, *s)) list_add(list, *s, false);
}

/* Appends text to the last choice's argument. */
static pj_status argument_append(pj_power_list *list, const char *text, size_t length,
                                 pj_error *err)
{
    char *argument = list->choices[list->count - 1].argument;
    size_t used = strlen(argument);
    if (used + length >= PJ_POWER_ARGUMENT_BYTES)
        return pj_fail(err, PJ_E_INVALID,
                       "power sources: the argument of %s: is longer than %d bytes",
                       list->choices[list->count - 1].source->name, PJ_POWER_ARGUMENT_BYTES - 1);
    memcpy(argument + used, text, length);
    argument[used + length] = 0;
    return PJ_OK;
}

static pj_status unknown_source(const char *piece, size_t length, pj_error *err)
{
    char known[256] = "", wanted[65], hint[80];
    pj_nearest nearest;
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, piece);
    pj_nearest_begin(&nearest, wanted);
    pj_nearest_offer_list(&nearest, "auto none");
    for (const pj_power_source *const *s = pj_power_sources; *s; s++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", (*s)->name);
        pj_nearest_offer(&nearest, (*s)->name, strlen((*s)->name));
    }
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    return pj_fail(err, PJ_E_INVALID, "power sources: unknown source %s (known: auto, none, %s)%s",
                   wanted, known, hint);
}

/* One piece between commas. */
static pj_status sources_take_piece(pj_power_list *list, const char *piece, size_t length,
                                    bool *in_argument, pj_error *err)
{
    size_t name_length = 0;
    while (name_length < length && piece[name_length] != ':') name_length++;
    const pj_power_source *source = pj_power_source_find(piece, name_length);
    if (source) {
        list->named = true;
        *in_argument = name_length < length;
        if (list_has(list, source))
            return pj_fail(err, PJ_E_INVALID, "power sources: %s is named twice", source->name);
        list_add(list, source, true);
        if (!*in_argument) return PJ_OK;
        return argument_append(list, piece + name_length + 1, length - name_length - 1, err);
    }
    if (*in_argument) {
        pj_status status = argument_append(list, ",", 1, err);
        return status != PJ_OK ? status : argument_append(list, piece, length, err);
    }
    if (length == 4 && strncmp(piece, "auto", 4) == 0) {
        list_add_auto(list);
        return PJ_OK;
    }
    if (length == 4 && strncmp(piece, "none", 4) == 0)
        return pj_fail(err, PJ_E_INVALID,
                       "power sources: \"none\" cannot be combined with other sources");
    return unknown_source(piece, length, err);
}

pj_status pj_power_list_parse(const char *text, pj_power_list *list, pj_error *err)
{
    *list = (pj_power_list){0};
    if (strcmp(text, "none") == 0) return PJ_OK;
    bool in_argument = false;
    for (const char *piece = text;;) {
        size_t length = strcspn(piece, ",");
        pj_status status = sources_take_piece(list, piece, length, &in_argument, err);
        if (status != PJ_OK) return status;
        if (!piece[length]) return PJ_OK;
        piece += length + 1;
    }
}

bool pj_power_is_remote(const char *list)
{
    pj_power_list parsed;
    if (pj_power_list_parse(list, &parsed, NULL) != PJ_OK) return false;
    for (uint32_t i = 0; i < parsed.count; i++)
        if (parsed.choices[i].source->flags & PJ_SOURCE_REMOTE) return true;
    return false;
}

void pj_power_list_public(const char *list, char *out, size_t bytes)
{
    static const char key[] = "token=", mask[] = "***";
    size_t length = 0;
    for (const char *at = list; *at && length + 1 < bytes;) {
        bool secret =
            (at == list || at[-1] == ',' || at[-1] == ':') && strncmp(at, key, sizeof key - 1) == 0;
        if (!secret) {
            out[length++] = *at++;
            continue;
        }
        int n = snprintf(out + length, bytes - length, "%s%s", key, mask);
        length = length + (size_t)n < bytes ? length + (size_t)n : bytes - 1;
        at += strcspn(at, ",");
    }
    out[length] = 0;
}

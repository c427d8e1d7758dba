#include "record/environment.h"

#include "base/file.h"
#include "power/source.h"
#include "trace/run_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pj_status environment_rule_baseline(const char *text, pj_error *err)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end > text && *end == 0 && seconds >= 0 && seconds < PJ_MAX_BASELINE_SECONDS) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be seconds, from 0 to less than %d",
                   PJ_MAX_BASELINE_SECONDS);
}

static pj_status environment_rule_clock(const char *text, pj_error *err)
{
    if (strcmp(text, "system") == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be system, or not be set");
}

static pj_status environment_rule_folder(const char *path, pj_error *err)
{
    return pj_dir_exists(path) ? PJ_OK : pj_fail(err, PJ_E_INVALID, "there is no such folder");
}

static pj_status environment_rule_power(const char *list, pj_error *err)
{
    pj_power_list parsed;
    return pj_power_list_parse(list, &parsed, err);
}

static pj_status environment_rule_session(const char *id, pj_error *err)
{
    if (pj_session_id_is_valid(id)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be " PJ_SESSION_ID_RULE);
}

pj_status pj_environment_check_these(const pj_variable *variables, size_t count, pj_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = getenv(variables[i].name);
        pj_error why;
        if (value && *value && variables[i].rule(value, &why) != PJ_OK)
            return pj_fail(err, PJ_E_INVALID, "the environment's %s=%.*s: %s", variables[i].name,
                           pj_error_repeatable(value), value, why.text);
    }
    return PJ_OK;
}

pj_status pj_environment_check(pj_error *err)
{
    static const pj_variable variables[] = {
        {"PERJOULE_BASELINE", environment_rule_baseline},
        {"PERJOULE_CLOCK", environment_rule_clock},
        {"PERJOULE_POWER", environment_rule_power},
        {"PERJOULE_PROCFS", environment_rule_folder},
        {"PERJOULE_SESSION", environment_rule_session},
        {"PERJOULE_SYSFS", environment_rule_folder},
    };
    return pj_environment_check_these(variables, sizeof variables / sizeof *variables, err);
}

const char *pj_environment_session(const char *const *tags, uint32_t count)
{
    const char *id = getenv("PERJOULE_SESSION");
    for (uint32_t i = 0; i < count; i++)
        if (strncmp(tags[i], PJ_TAG_SESSION, strlen(PJ_TAG_SESSION)) == 0) return NULL;
    return id && pj_session_id_is_valid(id) ? id : NULL;
}

double pj_environment_baseline_seconds(void)
{
    const char *text = getenv("PERJOULE_BASELINE");
    return text && *text ? strtod(text, NULL) : NAN;
}

/* Reads members of a JSON object and keeps the first error. */
#include "engine/model/config_reader.h"

#include <stdio.h>

pj_status pj_config_refuse(pj_config_reader *r, pj_status status, const char *key,
                           const char *problem)
{
    if (r->status != PJ_OK) return r->status;
    return r->status = pj_fail(r->err, status, "%s: %s %s", r->name, key, problem);
}

json_t *pj_config_get(const pj_config_reader *r, const char *key)
{
    json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

json_t *pj_config_get_any(const pj_config_reader *r, const char *key)
{
    json_t *value = pj_config_get(r, key), *around = json_object_get(r->outer, key);
    return value || json_is_null(around) ? value : around;
}

uint32_t pj_config_count(pj_config_reader *r, const char *key, int64_t fallback, int64_t min,
                         int64_t max)
{
    json_t *value = pj_config_get(r, key);
    if (!value && fallback >= 0) return (uint32_t)fallback;
    if (!value) {
        pj_config_refuse(r, PJ_E_INVALID, key, "is missing");
        return 0;
    }
    if (!json_is_integer(value)) {
        pj_config_refuse(r, PJ_E_INVALID, key, "must be an integer");
        return 0;
    }
    int64_t number = json_integer_value(value);
    if (number < min || number > max) {
        char problem[96];
        snprintf(problem, sizeof problem, "is %lld, must be between %lld and %lld",
                 (long long)number, (long long)min, (long long)max);
        pj_config_refuse(r, PJ_E_INVALID, key, problem);
        return 0;
    }
    return (uint32_t)number;
}

double pj_config_number(pj_config_reader *r, const char *key, double fallback, double min,
                        double max)
{
    json_t *value = pj_config_get(r, key);
    if (!value) return fallback;
    double number = json_number_value(value);
    if (!json_is_number(value)) {
        pj_config_refuse(r, PJ_E_INVALID, key, "must be a number");
        return fallback;
    }
    if (!(number >= min && number <= max)) {
        char problem[96];
        snprintf(problem, sizeof problem, "is %g, must be between %g and %g", number, min, max);
        pj_config_refuse(r, PJ_E_INVALID, key, problem);
        return fallback;
    }
    return number;
}

double pj_config_need_number(pj_config_reader *r, const char *key, double min, double max)
{
    if (!pj_config_get(r, key)) pj_config_refuse(r, PJ_E_INVALID, key, "is missing");
    return pj_config_number(r, key, min, min, max);
}

bool pj_config_bool(pj_config_reader *r, const char *key, bool fallback)
{
    json_t *value = pj_config_get(r, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) pj_config_refuse(r, PJ_E_INVALID, key, "must be true or false");
    return json_is_true(value);
}

const char *pj_config_text(pj_config_reader *r, const char *key, const char *fallback)
{
    json_t *value = pj_config_get(r, key);
    if (!value) return fallback;
    if (!json_is_string(value)) {
        pj_config_refuse(r, PJ_E_INVALID, key, "must be a string");
        return fallback;
    }
    return json_string_value(value);
}

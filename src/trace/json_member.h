/* Members of JSON objects as C values; NAN or "" if missing or of another type. */
#ifndef PJ_TRACE_JSON_MEMBER_H
#define PJ_TRACE_JSON_MEMBER_H

#include <jansson.h>
#include <math.h>

static inline double pj_member_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static inline const char *pj_member_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

#endif

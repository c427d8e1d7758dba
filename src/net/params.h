/* The target of a request: path and query, decoded and checked byte by byte. Rejects, with a
 * sentence, anything but printable ASCII in the path, valid UTF-8 without control characters in
 * values, and parameters known to the route. Untrusted input before, plain strings and numbers
 * after. */
#ifndef PJ_NET_PARAMS_H
#define PJ_NET_PARAMS_H

#include "base/error.h"
#include "base/memory.h"

enum { PJ_PARAMS_MAX = 64, PJ_TARGET_MAX_BYTES = 16384 };

typedef struct pj_param {
    const char *name, *value;
} pj_param;

typedef struct pj_params {
    pj_param items[PJ_PARAMS_MAX];
    uint32_t count;
} pj_params;

typedef struct pj_target {
    const char *path;      /* begins with '/' */
    const char *authority; /* of "http://authority/path", replaces the Host header; else NULL */
    pj_params params;
} pj_target;

/* Splits and decodes a raw request target in origin form ("/a?b=c") or absolute form
 * ("http://host/a?b=c"); texts go into the arena. */
pj_status pj_target_parse(const char *raw, pj_target *target, pj_arena *arena, pj_error *err);

typedef enum pj_param_type {
    PJ_PARAM_TEXT = 0,
    PJ_PARAM_INT,    /* within min and max */
    PJ_PARAM_NUMBER, /* finite, within min and max */
    PJ_PARAM_CHOICE, /* one of `choices` */
    PJ_PARAM_TIME    /* ISO 8601 or a date */
} pj_param_type;

typedef struct pj_param_rule {
    const char *name;
    pj_param_type type;
    double min, max;     /* both 0: any */
    const char *choices; /* "a|b|c" */
    bool repeatable;
} pj_param_rule;

/* `rules` ends with an entry without a name; NULL: no parameters. PJ_E_INVALID names the parameter,
 * and for an unknown one the closest known name. */
pj_status pj_params_check(const pj_params *params, const pj_param_rule *rules, pj_error *err);

/* Only after pj_params_check. */
const char *pj_params_text(const pj_params *params, const char *name); /* NULL: not given */
bool pj_params_is(const pj_params *params, const char *name, const char *value);
int64_t pj_params_int(const pj_params *params, const char *name, int64_t otherwise);
double pj_params_number(const pj_params *params, const char *name, double otherwise);

#endif

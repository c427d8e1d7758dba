/* Variables of the environment: a value that cannot be is refused before it would be ignored. */
#ifndef PJ_RECORD_ENVIRONMENT_H
#define PJ_RECORD_ENVIRONMENT_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pj_variable {
    const char *name;
    pj_status (*rule)(const char *value, pj_error *err); /* says what is wrong with the value */
} pj_variable;

/* Those of every session. */
pj_status pj_environment_check(pj_error *err);
/* Others; an empty value counts as none. */
pj_status pj_environment_check_these(const pj_variable *variables, size_t count, pj_error *err);

/* The task that PERJOULE_SESSION names, so that what an agent starts is grouped without its help;
 * NULL: none, or one of so many tags names another. */
const char *pj_environment_session(const char *const *tags, uint32_t count);
/* PERJOULE_BASELINE, checked; NAN: not given. */
double pj_environment_baseline_seconds(void);
enum { PJ_MAX_BASELINE_SECONDS = 3600 }; /* less than this */

#endif

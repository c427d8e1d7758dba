/* A comparison in one sentence per pair of runs. */
#ifndef PJ_CLI_VERDICT_H
#define PJ_CLI_VERDICT_H

#include <jansson.h>
#include <stddef.h>

/* Of the tests (the array that `compare --json` has) those of the runs number `a` and `b`: which of
 * the two takes less energy per token and which is faster, as far as the tests show it. "" when
 * nothing was tested. */
void pj_verdict(const json_t *tests, unsigned a, unsigned b, char *text, size_t bytes);

#endif

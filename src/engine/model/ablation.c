/* The names of what can be left out. */
#include "engine/model/ablation.h"

#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pj_status pj_ablation_parse(const char *text, pj_ablation *a, pj_error *err)
{
    static const char layers[] = "layers=";
    char *end = NULL;
    *a = (pj_ablation){0};
    if (!text || !*text) return PJ_OK;
    a->attention = strcmp(text, "attention") == 0;
    a->mlp = strcmp(text, "mlp") == 0;
    a->head = strcmp(text, "head") == 0;
    if (a->attention || a->mlp || a->head) return PJ_OK;
    if (strncmp(text, layers, sizeof layers - 1) == 0 && isdigit((unsigned char)text[7])) {
        unsigned long n = strtoul(text + 7, &end, 10);
        if (!*end && n >= 1 && n <= 100000) {
            a->layers = (uint32_t)n;
            return PJ_OK;
        }
    }
    char hint[80], name[65];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    pj_nearest_hint(name, strchr(text, '=') ? "layers" : "attention mlp head layers", hint,
                    sizeof hint);
    if (strcmp(name, "layers") == 0) *hint = 0;
    return pj_fail(err, PJ_E_INVALID,
                   "\"%.64s\" cannot be ablated: use attention, mlp, head or layers=N (which keeps "
                   "the first N layers)%s",
                   text, hint);
}

#include "net/coding.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int pj_coding_weight(const char *accept, const char *coding)
{
    int any = -1;
    for (const char *p = accept; p && *p;) {
        p += strspn(p, " \t,");
        size_t length = strcspn(p, ",;"), name = length;
        while (name > 0 && (p[name - 1] == ' ' || p[name - 1] == '\t')) name--;
        const char *rest = p + length;
        int weight = 1000;
        if (*rest == ';') {
            const char *q = rest + 1 + strspn(rest + 1, " \t");
            if ((*q == 'q' || *q == 'Q') && q[1] == '=') {
                double value = strtod(q + 2, NULL);
                weight = value > 0 ? value < 1 ? (int)(value * 1000) : 1000 : 0;
            }
            rest += strcspn(rest, ",");
        }
        if (name == strlen(coding) && strncasecmp(p, coding, name) == 0) return weight;
        if (name == 1 && *p == '*') any = weight;
        p = rest;
    }
    return any;
}

bool pj_coding_takes_gzip(const char *accept)
{
    int gzip = pj_coding_weight(accept, "gzip"), identity = pj_coding_weight(accept, "identity");
    return gzip > 0 && identity <= gzip;
}

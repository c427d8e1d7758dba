/* Content codings: what a client accepts, by its Accept-Encoding header (RFC 9110, 12.5.3). */
#ifndef PJ_NET_CODING_H
#define PJ_NET_CODING_H

#include <stdbool.h>

/* The weight of a coding in the header (NULL: absent), in thousandths; -1: not mentioned. */
int pj_coding_weight(const char *accept, const char *coding);
/* Whether gzip is accepted, and not less welcome than no coding at all. */
bool pj_coding_takes_gzip(const char *accept);

#endif

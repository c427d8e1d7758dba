/* Answers to requests that are refused before anything else reads them. */
#ifndef PJ_HTTP_PROBLEM_H
#define PJ_HTTP_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>

enum { PJ_PROBLEM_BYTES = 1536 };

/* The reason phrase of a status. */
const char *pj_status_reason(int status);
/* A whole answer with a problem document (RFC 9457), after which the connection closes; returns its
 * length. `detail` holds nothing that JSON escapes. `lines`: more lines of the head, each with CR
 * LF. `is_head`: the request was HEAD, so that the document is not sent. */
size_t pj_problem_write(char text[PJ_PROBLEM_BYTES], int status, const char *detail,
                        const char *lines, bool is_head);

#endif

#include "http/problem.h"

#include <stdio.h>

const char *pj_status_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {{400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {411, "Length Required"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {417, "Expectation Failed"},
                 {421, "Misdirected Request"},
                 {422, "Unprocessable Content"},
                 {426, "Upgrade Required"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].reason;
    return "Internal Server Error";
}

size_t pj_problem_write(char text[PJ_PROBLEM_BYTES], int status, const char *detail,
                        const char *lines, bool is_head)
{
    static const char form[] =
        "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,\"detail\":\"%.400s\"}";
    char body[600];
    const char *reason = pj_status_reason(status);
    int n = snprintf(body, sizeof body, form, reason, status, detail);
    return (size_t)snprintf(text, PJ_PROBLEM_BYTES,
                            "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n"
                            "Content-Length: %d\r\nConnection: close\r\n%.400s\r\n%s",
                            status, reason, n, lines, is_head ? "" : body);
}

/* Secrets of a request, and what is left of them in what the server answers. */
#include "attach/hidden.h"

#include "../assertions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct masked_case {
    const char *target, *header, *answer, *kept;
} masked_case;

static void secrets_are_masked(void **state)
{
    (void)state;
    static const masked_case cases[] = {
        {"/v1", "Authorization: Bearer sk-0123456789abcdef", "bad key sk-0123456789abcdef!",
         "bad key *******************!"},
        {"/v1", "Authorization: sk-0123456789abcdef", "Bearer sk-0123456789abcdef",
         "Bearer *******************"},
        /* whatever the header is called */
        {"/v1", "X-Auth-Token: 0123456789", "no 0123456789", "no **********"},
        {"/v1", "Ocp-Apim-Subscription-Key: 0123456789", "no 0123456789", "no **********"},
        {"/v1", "x-litellm-key: Bearer 0123456789", "no 0123456789", "no **********"},
        {"/v1", "X-Request-Id: 0123456789", "no 0123456789", "no 0123456789"},
        /* cookies and queries; their short values are words of any text */
        {"/v1", "Cookie: theme=dark; session=0123456789; last=abcdefghij",
         "dark 0123456789 abcdefghij", "dark ********** **********"},
        {"/v1?alt=sse&key=0123456789", "Accept: */*", "/v1?key=0123456789&alt=sse",
         "/v1?key=**********&alt=sse"},
        {"/v1?version=0123456789", "Accept: */*", "no 0123456789", "no 0123456789"},
        /* abbreviated, in other case, cut off, next to itself */
        {"/v1", "Api-Key: sk-0123456789abcdef", "sk-0123456789... is wrong",
         "*************... is wrong"},
        {"/v1", "Api-Key: sk-0123456789abcdef", "sk-01... is wrong", "sk-01... is wrong"},
        {"/v1", "Api-Key: sk-0123456789ABCDEF", "SK-0123456789abcdef", "*******************"},
        {"/v1", "Api-Key: sk-0123456789abcdef", "bad key sk-012", "bad key ******"},
        {"/v1", "Api-Key: sk-0123456789abcdef", "sk-0123456789abcdefsk-0123456789abcdef.",
         "**************************************."},
        {"/v1", "Api-Key: abc", "abcd", "abcd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[512], answer[128];
        pj_hidden hidden;
        int n = snprintf(lines, sizeof lines, "POST %s HTTP/1.1\r\nHost: a\r\n%s\r\n",
                         cases[i].target, cases[i].header);
        snprintf(answer, sizeof answer, "%s", cases[i].answer);
        pj_hidden_init(&hidden);
        pj_hidden_take(&hidden, lines, (size_t)n);
        pj_hidden_mask(&hidden, answer, strlen(answer), 4);
        assert_string_equal(answer, cases[i].kept);
        pj_hidden_fini(&hidden);
    }
}

/* A secret may be the client's choice, and the answer the server's: together they take no longer
 * than apart. */
static void a_long_secret_of_one_letter_takes_no_time(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    static char lines[16 << 10], text[BYTES];
    pj_hidden hidden;
    int n = snprintf(lines, sizeof lines, "GET / HTTP/1.1\r\nApi-Key: %07000d%07000d1\r\n", 0, 0);
    memset(strchr(lines, ':') + 9000, '2', 4000);
    memset(text, '0', sizeof text);
    pj_hidden_init(&hidden);
    pj_hidden_take(&hidden, lines, (size_t)n);
    pj_hidden_mask(&hidden, text, sizeof text, 4);
    assert_null(memchr(text, '0', sizeof text));
    pj_hidden_fini(&hidden);
}

static void a_long_cookie_in_front_hides_no_key(void **state)
{
    (void)state;
    static char lines[50000];
    char answer[] = "bad key 0123456789";
    pj_hidden hidden;
    int n = snprintf(lines, sizeof lines,
                     "GET / HTTP/1.1\r\nCookie: a=%040000d\r\nApi-Key: 0123456789\r\n", 7);
    pj_hidden_init(&hidden);
    pj_hidden_take(&hidden, lines, (size_t)n);
    pj_hidden_mask(&hidden, answer, strlen(answer), 4);
    assert_string_equal(answer, "bad key **********");
    pj_hidden_fini(&hidden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(secrets_are_masked),
                                       cmocka_unit_test(a_long_secret_of_one_letter_takes_no_time),
                                       cmocka_unit_test(a_long_cookie_in_front_hides_no_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

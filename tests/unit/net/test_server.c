/* The server on the fake service, without a port: routes, streams, hostile bytes. */
#include "../assertions.h"
#include "made_service.h"

#include "base/clock.h"
#include "base/random.h"
#include "base/thread.h"
#include "net/turns.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    made made;
    pj_hub *hub;
    pj_server *server;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    made_init(&f->made);
    made_server(&f->made, NULL, &f->hub, &f->server);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pj_server_close(f->server);
    pj_hub_close(f->hub);
    free(f);
    return 0;
}

static char *request(fixture *f, const char *method, const char *target, const char *body,
                     size_t *got)
{
    char request[4096];
    int n = snprintf(request, sizeof request,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\nConnection: "
                     "close\r\n\r\n%s",
                     method, target, strlen(body), body);
    return made_talk(f->server, request, (size_t)n, got);
}

static void expect(fixture *f, const char *method, const char *target, const char *body, int status,
                   const char *part)
{
    size_t got;
    char *answer = request(f, method, target, body, &got);
    if (made_status(answer) != status || !strstr(answer, part))
        fail_msg("%s %s answered %.300s", method, target, answer);
    free(answer);
}

static void routes_reach_the_service(void **state)
{
    fixture *f = *state;
    expect(f, "GET", "/healthz", "", 200, "\"queue\":3,\"running\":null");
    expect(f, "GET", "/api/profiling/runs?limit=5&tag=%C3%A9", "", 200, "\"tag\":\"\xc3\xa9\"");
    expect(f, "GET", "/api/profiling/runs", "", 200, "X-Total-Count: 7");
    expect(f, "GET", "/api/profiling/run/0198/tokens?offset=3", "", 200, "\"offset\":\"3\"");
    expect(f, "GET", "/api/profiling/run/last", "", 200, MADE_RUN);
    expect(f, "GET", "/api/profiling/run/last/heatmap?format=f32", "", 200, "octet-stream");
    expect(f, "GET", "/api/profiling/run/nosuch/tokens", "", 404, "there is no run nosuch");
    expect(f, "DELETE", "/api/profiling/run/last", "", 204, "\r\n\r\n");
    expect(f, "DELETE", "/api/profiling/runs?before=2026-01-31&keep=3", "", 200, "\"keep\":\"3\"");
    expect(f, "DELETE", "/api/profiling/runs", "", 400, "give before=TIME");
    expect(f, "DELETE", "/api/profiling/runs?keep=-1", "", 400, "keep");
    expect(f, "DELETE", "/api/profiling/runs?befor=2026-01-31", "", 400, "befor");
    expect(f, "POST", "/api/profiling/run/last/cancel", "", 409, "already ended");
    expect(f, "POST", "/api/profiling/generate", "{\"prompt\":\"a\"}", 200, "run_id");
    expect(f, "POST", "/api/profiling/generate", "{\"prompt\":\"a\",\"wait\":false}", 202,
           "queued");
    expect(f, "POST", "/api/profiling/generate", "{\"prompt\":\"full\"}", 429, "Retry-After");
    assert_int_equal(f->made.generated, 2);
    assert_int_equal(f->made.waited, 1);
    expect(f, "GET", "/metrics", "", 200,
           "perjoule_rail_power_watts{rail=\"odd\\\"name\",source=\"hwmon\",class=\"cpu\","
           "quality=\"measured\"} 12.5\n");
    expect(f, "GET", "/metrics", "", 200, "class=\"cpu\",quality=\"measured\"} 3.5\n");
    expect(f, "GET", "/metrics", "", 200, "perjoule_sampler_jitter_seconds NaN\n");
    expect(f, "GET", "/api/profiling/power/now?seconds=30", "", 200, "\"seconds\":\"30\"");
    expect(f, "GET", "/api/profiling/power/now?seconds=301", "", 400, "seconds");
    expect(f, "GET", "/metrics", "", 200, "phase=\"idle\",quality=\"measured\"} 0.25\n");
    expect(f, "GET", "/api/openapi.json", "", 200, "\"openapi\":\"3.1.0\"");
    expect(f, "GET", "/", "", 200, "perjoule");
}

static void small_exports_have_a_length(void **state)
{
    fixture *f = *state;
    expect(f, "GET", "/api/profiling/export/last?format=csv", "", 200, "Content-Length: 2000");
    expect(f, "GET", "/api/profiling/export/last?format=folded", "", 503, "no energy is known");
}

/* Backpressure: a gigabyte streams through a queue of a quarter megabyte in constant memory. */
static void large_exports_stream(void **state)
{
    fixture *f = *state;
    static char block[1 << 20];
    static const char request[] =
        "GET /api/profiling/export/last HTTP/1.0\r\nHost: localhost\r\n\r\n";
    f->made.export_bytes = 1000000000;
    int fd = made_connect(f->server);
    uint64_t total = 0;
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    for (ssize_t n; (n = recv(fd, block, sizeof block, 0)) > 0;) {
        total += (uint64_t)n;
        /* The producer is never ahead of the consumer by more than socket buffers and queue. */
        assert_that(atomic_load(&f->made.exported), <, total + (4u << 20));
    }
    assert_that(total, >, 1000000000);
    assert_that(total, <, 1000002000);
    close(fd);
}

static void a_reader_that_goes_ends_the_export(void **state)
{
    fixture *f = *state;
    static const char request[] =
        "GET /api/profiling/export/last HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char some[1000];
    f->made.export_bytes = UINT64_MAX / 2;
    for (int i = 0; i < 20; i++) { /* beyond the limit of streams: each must end */
        int fd = made_connect(f->server);
        assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
        assert_that(recv(fd, some, sizeof some, 0), >, 0);
        close(fd);
        if (i >= 8) pj_clock_sleep_until(pj_clock_ns() + 20 * PJ_NS_PER_MS);
    }
}

/* Views of all runs are computed two at a time; of a crowd some wait and the others are refused at
 * once, and other requests are answered meanwhile. */
static void few_views_of_all_runs_at_once(void **state)
{
    enum { CROWD = PJ_TURNS_AT_ONCE + PJ_TURNS_WAITING + 6 };
    fixture *f = *state;
    static const char request[] =
        "GET /api/profiling/compare/groups?by=model HTTP/1.0\r\nHost: localhost\r\n\r\n";
    struct pollfd waits[CROWD];
    char answer[1000];
    int refused = 0, answered = 0;
    atomic_store(&f->made.holds_groups, true);
    for (int i = 0; i < CROWD; i++) {
        waits[i] = (struct pollfd){.fd = made_connect(f->server), .events = POLLIN};
        assert_int_equal(send(waits[i].fd, request, sizeof request - 1, 0), sizeof request - 1);
    }
    for (int left = CROWD; left > 0;) {
        assert_that(poll(waits, CROWD, 60000), >, 0);
        for (int i = 0; i < CROWD; i++) {
            if (!waits[i].revents) continue;
            ssize_t n = recv(waits[i].fd, answer, sizeof answer - 1, MSG_WAITALL);
            answer[n > 0 ? n : 0] = 0;
            refused += made_status(answer) == 503;
            answered += made_status(answer) == 200;
            close(waits[i].fd);
            waits[i].fd = -1;
            left--;
        }
        if (refused < 6) continue;
        expect(f, "GET", "/api/profiling/facets", "", 200, "view");
        atomic_store(&f->made.holds_groups, false);
    }
    assert_int_equal(refused, 6);
    assert_int_equal(answered, CROWD - 6);
    assert_int_equal(atomic_load(&f->made.most_grouping), PJ_TURNS_AT_ONCE);
}

/* Nothing is computed for clients that left while they waited. */
static void those_who_leave_give_up_their_turn(void **state)
{
    enum { CROWD = PJ_TURNS_AT_ONCE + PJ_TURNS_WAITING + 1 };
    fixture *f = *state;
    static const char request[] =
        "GET /api/profiling/compare/groups?by=model HTTP/1.0\r\nHost: localhost\r\n\r\n";
    struct pollfd fds[CROWD];
    char answer[1000];
    atomic_store(&f->made.holds_groups, true);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = (struct pollfd){.fd = made_connect(f->server), .events = POLLIN};
        assert_int_equal(send(fds[i].fd, request, sizeof request - 1, 0), sizeof request - 1);
    }
    assert_that(poll(fds, CROWD, 60000), ==, 1); /* one is refused, so all others wait */
    for (int i = 0; i < CROWD; i++)
        if (fds[i].revents || i % 4) close(fds[i].fd);
    atomic_store(&f->made.holds_groups, false);
    int stayed = 0;
    for (int i = 0; i < CROWD; i += 4) {
        if (fds[i].revents) continue;
        assert_that(recv(fds[i].fd, answer, sizeof answer, 0), >, 0);
        close(fds[i].fd);
        stayed++;
    }
    /* with those that were being computed when they left */
    assert_that(atomic_load(&f->made.grouped), <=, stayed + PJ_TURNS_AT_ONCE);
}

static void *wait_for_turn(void *context)
{
    bool has_waited;
    return pj_turns_take(context, &has_waited) ? context : NULL;
}

static void closing_ends_the_wait_for_a_turn(void **state)
{
    pj_turns turns;
    pthread_t thread;
    void *got;
    bool has_waited;
    pj_turns_init(&turns);
    for (int i = 0; i < PJ_TURNS_AT_ONCE; i++) assert_true(pj_turns_take(&turns, &has_waited));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_turn, &turns), 0);
    pj_turns_close(&turns);
    assert_int_equal(pthread_join(thread, &got), 0);
    assert_null(got);
    pj_turns_fini(&turns);
}

/* ---- hostile bytes ------------------------------------------------------------------------- */

static const char *const pieces[] = {"GET ",
                                     "POST ",
                                     "DELETE ",
                                     "HEAD ",
                                     "PUT ",
                                     "G@T ",
                                     "/",
                                     "/api/profiling/",
                                     "runs",
                                     "generate",
                                     "run/",
                                     "last",
                                     "/tokens",
                                     "/ws/profiling",
                                     "/healthz",
                                     "?",
                                     "&",
                                     "=",
                                     "%",
                                     "%00",
                                     "%2e%2e",
                                     "..",
                                     "limit",
                                     "a",
                                     "\xff",
                                     "\x01",
                                     " ",
                                     " HTTP/1.1",
                                     " HTTP/1.0",
                                     " HTTP/9.9",
                                     "\r\n",
                                     "\r\n\r\n",
                                     "\n",
                                     "Host: localhost",
                                     "Host: evil",
                                     "Content-Length: ",
                                     "5",
                                     "99999999999999999999",
                                     "-1",
                                     "Transfer-Encoding: chunked",
                                     "0\r\n\r\n",
                                     "3\r\nabc\r\n",
                                     "ffffffffffffffff\r\n",
                                     "Connection: Upgrade",
                                     "Connection: close",
                                     "Upgrade: websocket",
                                     "Sec-WebSocket-Version: 13",
                                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                                     "Origin: null",
                                     "Authorization: Bearer x",
                                     "Expect: 100-continue",
                                     "X: ",
                                     ":",
                                     "{\"prompt\":\"a\"}",
                                     "{\"prompt\":[[[[[[",
                                     "\"",
                                     "}",
                                     "\x81\x85\0\0\0\0hello",
                                     "\x88\x80\0\0\0\0",
                                     "\x89\xfe\xff\xff",
                                     "\xff\xff\xff\xff\xff\xff\xff\xff"};

static size_t make_hostile(pj_random *random, char *out, size_t max)
{
    static const char handshake[] =
        "GET /ws/profiling HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
        "websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    static const char head[] = "POST /api/profiling/generate HTTP/1.1\r\nHost: localhost\r\n";
    size_t length = 0;
    uint64_t kind = pj_random_u64(random) % 4;
    const char *start = kind == 0 ? handshake : kind == 1 ? head : "";
    length = (size_t)snprintf(out, max, "%s", start);
    for (uint64_t n = pj_random_u64(random) % 24; n > 0; n--) {
        const char *piece = pieces[pj_random_u64(random) % (sizeof pieces / sizeof *pieces)];
        size_t bytes = strlen(piece) ? strlen(piece) : 1;
        if (length + bytes >= max) break;
        memcpy(out + length, piece, bytes);
        length += bytes;
    }
    for (uint64_t n = pj_random_u64(random) % 3; n > 0 && length > 0; n--)
        out[pj_random_u64(random) % length] = (char)pj_random_u64(random);
    return length;
}

typedef struct attack {
    fixture *f;
    uint64_t seed;
    int count;
} attack;

static void *attack_server(void *context)
{
    attack *a = context;
    pj_random random = {a->seed};
    for (int i = 0; i < a->count; i++) {
        char bytes[4096], answer[512];
        size_t length = make_hostile(&random, bytes, sizeof bytes);
        int fd = made_connect(a->f->server);
        if (fd < 0) continue;
        send(fd, bytes, length, MSG_NOSIGNAL);
        if (pj_random_u64(&random) % 4) shutdown(fd, SHUT_WR);
        if (pj_random_u64(&random) % 2) {
            struct timeval patience = {.tv_usec = 20000};
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            while (recv(fd, answer, sizeof answer, 0) > 0) continue;
        }
        close(fd);
    }
    return NULL;
}

/* 10,000 requests and handshakes combined from known problematic parts, sent by four threads. */
static void hostile_requests_hurt_nobody(void **state)
{
    fixture *f = *state;
    pthread_t threads[4];
    attack attacks[4];
    for (int i = 0; i < 4; i++) {
        attacks[i] = (attack){f, (uint64_t)(i + 1) * 7919, 2500};
        assert_int_equal(pj_thread_start(&threads[i], "attack", attack_server, &attacks[i], NULL),
                         PJ_OK);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    expect(f, "GET", "/healthz", "", 200, "ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(routes_reach_the_service, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_exports_have_a_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_exports_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reader_that_goes_ends_the_export, set_up, tear_down),
        cmocka_unit_test_setup_teardown(few_views_of_all_runs_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(those_who_leave_give_up_their_turn, set_up, tear_down),
        cmocka_unit_test(closing_ends_the_wait_for_a_turn),
        cmocka_unit_test_setup_teardown(hostile_requests_hurt_nobody, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

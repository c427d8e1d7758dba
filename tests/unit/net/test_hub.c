/* The hub over socket pairs: order, gaps, replay, slow and disconnecting readers, closing
 * handshake. */
#include "../assertions.h"
#include "../sanitized.h"
#include "made_service.h"

#include "base/clock.h"
#include "base/thread.h"
#include "net/live_json.h"

#include <errno.h>
#include <fcntl.h>
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

static pj_hub *open_hub(pj_hub_options options)
{
    pj_hub *hub;
    options.coalesce_ns = 1000;
    assert_int_equal(pj_hub_open(&options, &hub, NULL), PJ_OK);
    return hub;
}

static int join(pj_hub *hub, pj_reader_options options)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(pj_hub_add(hub, pair[1], &options, NULL, 0));
    return pair[0];
}

static void say(pj_hub *hub, pj_publication p, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    p.count = (size_t)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p.bytes = text;
    if (!p.audience) p.audience = PJ_FOR_ALL;
    pj_hub_publish(hub, &p);
}

static bool take(int fd, void *bytes, size_t count)
{
    char *at = bytes;
    while (count > 0) {
        ssize_t n = recv(fd, at, count, 0);
        if (n <= 0) return false;
        at += n;
        count -= (size_t)n;
    }
    return true;
}

/* The next text or binary frame's payload, NUL-terminated; the opcode, or -1 at the end. */
static int next_frame(int fd, char *payload, size_t max)
{
    unsigned char head[2], more[8];
    if (!take(fd, head, 2)) return -1;
    uint64_t bytes = head[1] & 127;
    if (bytes >= 126) {
        int n = bytes == 126 ? 2 : 8;
        if (!take(fd, more, (size_t)n)) return -1;
        bytes = 0;
        for (int i = 0; i < n; i++) bytes = bytes << 8 | more[i];
    }
    assert_that(bytes, <, max);
    if (!take(fd, payload, bytes)) return -1;
    payload[bytes] = 0;
    return head[0] & 15;
}

static void expect(int fd, const char *part)
{
    char text[8192];
    assert_int_equal(next_frame(fd, text, sizeof text), 1);
    if (!strstr(text, part)) fail_msg("%s has no %s", text, part);
}

static void readers_get_all_in_order(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){0});
    int fds[20];
    for (int i = 0; i < 20; i++) fds[i] = join(hub, (pj_reader_options){0});
    for (int i = 0; i < 20; i++) expect(fds[i], "\"hello\"");
    for (int n = 0; n < 500; n++) say(hub, (pj_publication){.state = n % 2}, "{\"n\":%d}", n);
    for (int i = 0; i < 20; i++) {
        for (int n = 0; n < 500; n++) {
            char want[64];
            snprintf(want, sizeof want, "{\"seq\":%d,\"n\":%d}", n + 1, n);
            expect(fds[i], want);
        }
        close(fds[i]);
    }
    pj_hub_close(hub);
}

static void audiences_and_runs_are_kept_apart(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){0});
    int text = join(hub, (pj_reader_options){0});
    int binary = join(hub, (pj_reader_options){.binary = true});
    int one = join(hub, (pj_reader_options){.run_id = "b"});
    char got[64];
    expect(text, "hello");
    expect(binary, "hello");
    expect(one, "hello");
    assert_true(pj_hub_readers(hub, true) && pj_hub_readers(hub, false));
    say(hub, (pj_publication){.run_id = "a", .audience = PJ_FOR_JSON}, "{\"t\":1}");
    say(hub, (pj_publication){.run_id = "a", .audience = PJ_FOR_BINARY, .binary = true},
        "12345678");
    say(hub, (pj_publication){.run_id = "b"}, "{\"t\":2}");
    expect(text, "{\"seq\":1,\"t\":1}");
    expect(text, "{\"seq\":3,\"t\":2}");
    assert_int_equal(next_frame(binary, got, sizeof got), 2);
    assert_memory_equal(got, "1234\2\0\0\0", 8); /* its number */
    expect(binary, "{\"seq\":3,\"t\":2}");
    expect(one, "{\"seq\":3,\"t\":2}");
    close(text);
    close(binary);
    close(one);
    pj_hub_close(hub);
}

static void late_readers_are_told_the_present_run(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){0});
    say(hub, (pj_publication){.run_id = "old"}, "{\"t\":\"old\"}");
    say(hub, (pj_publication){.run_id = "a", .begins_run = true}, "{\"t\":\"begin\"}");
    say(hub, (pj_publication){.run_id = "a"}, "{\"t\":\"token\"}");
    int first = join(hub, (pj_reader_options){0});
    expect(first, "\"hello\"");
    expect(first, "{\"seq\":2,\"t\":\"begin\"}");
    expect(first, "{\"seq\":3,\"t\":\"token\"}");
    int resumed = join(hub, (pj_reader_options){.resume = true, .from = 3});
    expect(resumed, "\"hello\"");
    expect(resumed, "{\"seq\":3,\"t\":\"token\"}");
    say(hub, (pj_publication){.run_id = "a", .ends_run = true}, "{\"t\":\"end\"}");
    expect(first, "{\"seq\":4,\"t\":\"end\"}");
    int after = join(hub, (pj_reader_options){0});
    expect(after, "\"seq\":4,\"type\":\"hello\"");
    int restarted = join(hub, (pj_reader_options){.resume = true, .from = 1000});
    expect(restarted, "\"hello\"");
    say(hub, (pj_publication){.run_id = "c"}, "{\"t\":\"next\"}");
    expect(after, "{\"seq\":5,");
    expect(restarted, "{\"seq\":5,");
    pj_buffer array;
    pj_buffer_init(&array, 1 << 20);
    pj_hub_write_messages(hub, "a", 3, &array);
    assert_string_equal(array.data, "[{\"seq\":3,\"t\":\"token\"},{\"seq\":4,\"t\":\"end\"}]");
    pj_buffer_fini(&array);
    close(first);
    close(resumed);
    close(after);
    close(restarted);
    pj_hub_close(hub);
}

static void what_is_gone_is_told_as_a_gap(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){.messages_max = 64});
    for (int n = 0; n < 200; n++) say(hub, (pj_publication){0}, "{\"n\":%d}", n);
    int fd = join(hub, (pj_reader_options){.resume = true, .from = 10});
    expect(fd, "\"hello\"");
    expect(fd, "\"type\":\"gap\",\"run_id\":null,\"t_ms\":null,\"from\":10,\"to\":136}");
    expect(fd, "{\"seq\":137,");
    close(fd);
    pj_hub_close(hub);
}

static void slow_readers_lose_states_not_events(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){.send_buffer_bytes = 4096});
    int slow = join(hub, (pj_reader_options){0}), quick = join(hub, (pj_reader_options){0});
    char text[8192];
    int events = 0, states = 0, gaps = 0;
    expect(quick, "hello");
    for (int n = 0; n < 2000; n++) {
        say(hub, (pj_publication){.state = n % 4 != 0}, "{\"kind\":\"%s\",\"pad\":\"%01000d\"}",
            n % 4 ? "state" : "event", n);
        expect(quick, "kind"); /* other readers are not delayed */
    }
    say(hub, (pj_publication){0}, "{\"kind\":\"last\"}");
    for (;;) {
        assert_int_equal(next_frame(slow, text, sizeof text), 1);
        if (strstr(text, "last")) break;
        events += strstr(text, "event") != NULL;
        states += strstr(text, "state") != NULL;
        gaps += strstr(text, "\"gap\"") != NULL;
    }
    assert_int_equal(events, 500);
    assert_that(states, <, 1500);
    assert_that(gaps, >, 0);
    close(slow);
    close(quick);
    pj_hub_close(hub);
}

static void deaf_readers_are_cut_off(void **state)
{
    pj_hub *hub =
        open_hub((pj_hub_options){.send_buffer_bytes = 4096, .stall_ns = 100 * PJ_NS_PER_MS});
    pj_hub_stats stats;
    int deaf = join(hub, (pj_reader_options){0});
    int n = 0;
    do { /* keeps publishing: a hub that wakes up late has dropped most messages before sending them
          */
        for (int k = 0; k < 200; k++) say(hub, (pj_publication){0}, "{\"pad\":\"%01000d\"}", n++);
        pj_clock_sleep_until(pj_clock_ns() + 10 * PJ_NS_PER_MS);
        pj_hub_get_stats(hub, &stats);
    } while (stats.readers > 0);
    assert_int_equal(stats.dropped, 1);
    close(deaf);
    pj_hub_close(hub);
}

static void the_hub_says_goodbye(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){0});
    int fd = join(hub, (pj_reader_options){0});
    char text[256];
    expect(fd, "hello");
    say(hub, (pj_publication){0}, "{\"t\":\"last\"}");
    pj_hub_close(hub);
    expect(fd, "last");
    assert_int_equal(next_frame(fd, text, sizeof text), 8);
    assert_int_equal((unsigned char)text[0] << 8 | (unsigned char)text[1], 1001);
    assert_int_equal(next_frame(fd, text, sizeof text), -1);
    close(fd);
}

static void *publish_many(void *context)
{
    for (int n = 0; n < 2000; n++) say(context, (pj_publication){.state = n % 3}, "{\"n\":%d}", n);
    return NULL;
}

static void threads_may_publish_while_readers_come_and_go(void **state)
{
    pj_hub *hub = open_hub((pj_hub_options){.messages_max = 256});
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pj_thread_start(&threads[i], "publish", publish_many, hub, NULL), PJ_OK);
    for (int i = 0; i < 100; i++) {
        pj_buffer out;
        int fd = join(hub, (pj_reader_options){.binary = i % 2});
        expect(fd, "hello");
        pj_buffer_init(&out, 1 << 20);
        pj_hub_write_messages(hub, "x", 0, &out);
        pj_buffer_fini(&out);
        close(fd);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    pj_hub_stats stats;
    pj_hub_get_stats(hub, &stats);
    assert_int_equal(stats.published, 6000);
    pj_hub_close(hub);
}

static size_t resident_kb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void *read_to_the_end(void *context)
{
    static char block[1 << 16];
    static uint64_t total;
    ssize_t n;
    while ((n = recv(*(int *)context, block, sizeof block, 0)) > 0) total += (uint64_t)n;
    return &total;
}

/* An hour of events: one call of the collector per 16 ms, 50 tokens per second with their sections.
 */
static void tell_an_hour(const pj_live_sink *sink, int hour, int hz)
{
    pj_live_power samples[16] = {0};
    int rows = hz >= 1000 ? 16 : 1;
    for (int64_t i = 0; i < (int64_t)3600 * hz; i += rows) {
        double t_ms = 3.6e6 * hour + (double)i * 1e3 / hz;
        for (int k = 0; k < rows; k++)
            samples[k] = (pj_live_power){.t_ms = t_ms + k * 1e3 / hz, .quality = PJ_MEASURED};
        sink->power(sink->context, "day", samples, (uint32_t)rows);
        if (i % (hz / 5) >= rows) continue;
        pj_live_section section = {.t_ms = t_ms, .name = "layers", .duration_ms = 1};
        sink->section_start(sink->context, "day", &section);
        sink->section_end(sink->context, "day", &section);
        for (int k = 0; k < 10; k++)
            sink->token(sink->context, "day", &(pj_live_token){.text = "t", .position = 1});
    }
}

/* Soak test: hours of samples and tokens within seconds, with a reader: 10 samples per second, or a
 * day of PJ_SOAK_HZ. Once the ring is full, memory does not grow. */
static void hours_of_samples_need_no_more_memory(void **state)
{
    pj_live_json *live;
    pthread_t reader;
    const char *asked = getenv("PJ_SOAK_HZ");
    int hours = asked ? 24 : PJ_SANITIZED ? 2 : 5;
    int hz = asked && atoi(asked) >= 10 ? atoi(asked) : 10;
    assert_int_equal(pj_live_json_open(&live, NULL), PJ_OK);
    pj_hub_options options = {.hello = pj_live_json_hello, .context = live, .bytes_max = 4 << 20};
    pj_hub *hub;
    assert_int_equal(pj_hub_open(&options, &hub, NULL), PJ_OK);
    pj_live_json_attach(live, hub);
    int fd = join(hub, (pj_reader_options){.binary = true});
    assert_int_equal(pj_thread_start(&reader, "reader", read_to_the_end, &fd, NULL), PJ_OK);
    const pj_live_sink *sink = pj_live_json_sink(live);
    sink->run_begin(sink->context, &(pj_live_run){.run_id = "day", .prompt = "p"});
    tell_an_hour(sink, 0, hz);
    size_t full_kb = resident_kb();
    for (int hour = 1; hour < hours; hour++) tell_an_hour(sink, hour, hz);
    pj_clock_sleep_until(pj_clock_ns() + 600 * PJ_NS_PER_MS);
    pj_hub_stats stats;
    pj_hub_get_stats(hub, &stats);
    size_t end_kb = resident_kb();
    assert_that(stats.ring_bytes, >, 0);
    assert_that(stats.ring_bytes, <=, 4 << 20);
    pj_hub_close(hub);
    void *total;
    pthread_join(reader, &total);
    assert_that(*(uint64_t *)total, >, 0);
    print_message(
        "%llu messages, %llu MB to the reader, %zu MB resident after an hour, %zu at the end\n",
        (unsigned long long)stats.published, (unsigned long long)(*(uint64_t *)total >> 20),
        full_kb >> 10, end_kb >> 10);
#if !PJ_SANITIZED
    assert_that(end_kb, <, full_kb + (16 << 10));
#endif
    close(fd);
    pj_live_json_close(live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_get_all_in_order),
        cmocka_unit_test(audiences_and_runs_are_kept_apart),
        cmocka_unit_test(late_readers_are_told_the_present_run),
        cmocka_unit_test(what_is_gone_is_told_as_a_gap),
        cmocka_unit_test(slow_readers_lose_states_not_events),
        cmocka_unit_test(deaf_readers_are_cut_off),
        cmocka_unit_test(the_hub_says_goodbye),
        cmocka_unit_test(threads_may_publish_while_readers_come_and_go),
        cmocka_unit_test(hours_of_samples_need_no_more_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Frames of a server, as a machine that joined and the fleet's server read them. */
#include "../assertions.h"
#include "http/websocket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static char taken[256];

static void take(void *context, const char *text, size_t bytes)
{
    snprintf(taken + strlen(taken), sizeof taken - strlen(taken), "%.*s|", (int)bytes, text);
}

static void heads_of_frames(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 1 << 30};
    unsigned char head[PJ_FRAME_HEAD_MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t payload;
        size_t n = pj_frame_head(head, i % 2, sizes[i]);
        assert_int_equal(head[0], i % 2 ? 0x82 : 0x81);
        assert_int_equal(pj_frame_parse(head, n, &payload), n);
        assert_int_equal(payload, sizes[i]);
        assert_int_equal(pj_frame_parse(head, n - 1, &payload), 0);
    }
}

static void texts_and_pings(void **state)
{
    static const char bytes[] = "\x81\x05watch\x82\x01x\x89\x02hi\x8a\0\x81\x03two";
    int pair[2];
    pj_frame_reader reader;
    unsigned char pong[16];
    for (size_t cut = 1; cut < sizeof bytes; cut++) {
        taken[0] = 0;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        pj_frame_reader_init(&reader, pair[0], take, NULL);
        assert_true(pj_frame_reader_take(&reader, bytes, cut));
        if (cut < sizeof bytes - 1)
            assert_that(send(pair[1], bytes + cut, sizeof bytes - 1 - cut, 0), >, 0);
        assert_true(pj_frame_reader_receive(&reader));
        assert_true(pj_frame_reader_receive(&reader)); /* nothing more yet */
        assert_string_equal(taken, "watch|two|");
        assert_int_equal(recv(pair[1], pong, sizeof pong, 0), 8);
        assert_memory_equal(pong, "\x8a\x82\0\0\0\0hi", 8); /* masked with zeros */
        close(pair[1]);
        assert_false(pj_frame_reader_receive(&reader));
        pj_frame_reader_fini(&reader);
        close(pair[0]);
    }
}

static void what_a_hub_does_not_send(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
    } bad[] = {{"\x88\0", 2},                                     /* close */
               {"\x01\x01x", 3},                                  /* a fragment */
               {"\xc1\x01x", 3},                                  /* a reserved bit */
               {"\x81\x81\0\0\0\0x", 7},                          /* masked */
               {"\x89\x7e\0\x7e", 4},                             /* a long ping */
               {"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10}}; /* too long */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pj_frame_reader reader;
        pj_frame_reader_init(&reader, -1, take, NULL);
        assert_false(pj_frame_reader_take(&reader, bad[i].bytes, bad[i].count));
        pj_frame_reader_fini(&reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_frames),
        cmocka_unit_test(texts_and_pings),
        cmocka_unit_test(what_a_hub_does_not_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Queues of the proxy's connections. */
#include "../assertions.h"
#include "attach/proxy_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A receiver that is always some bytes behind: the queue stays as small as what it holds, and in
 * order. */
static void a_queue_that_is_never_empty(void **state)
{
    pj_outgoing queue = {0};
    unsigned char next_in = 0, next_out = 0, bytes[1000];
    size_t most = 0;
    (void)state;
    pj_buffer_init(&queue.bytes, 1u << 30);
    for (int i = 0; i < 20000; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = next_in++;
        pj_pair_queue(&queue, bytes, sizeof bytes);
        if (queue.bytes.length > most) most = queue.bytes.length;
        for (size_t k = 0; k < sizeof bytes - (i == 0); k++)
            assert_int_equal((unsigned char)queue.bytes.data[queue.sent++], next_out++);
    }
    assert_int_equal(queue.bytes.length - queue.sent, 1);
    assert_that(most, <, 4 * PJ_PAIR_HOLD_BYTES);
    pj_buffer_fini(&queue.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_queue_that_is_never_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

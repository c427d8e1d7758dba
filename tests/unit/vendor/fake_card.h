/*
 * A stand-in for the management library of a data-centre card whose energy counter is dear: it
 * ticks every 100 ms on a grid, a read of it takes 3 ms and at times 17, and the driver keeps a log
 * of the last 119 values of power, each a mean of 25 ms and stamped with the wall clock.
 *
 * A test loads the library itself and gives it, by the symbol `fake_card`, its clock and the energy
 * that the card has drawn up to a time. So the truth of any interval is known to the test, and the
 * stand-in runs on a virtual clock as well.
 */
#ifndef PJ_TEST_FAKE_CARD_H
#define PJ_TEST_FAKE_CARD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fake_card {
    int64_t (*now_ns)(void);
    int64_t (*wall_ns)(void);
    void (*sleep_until)(int64_t monotonic_ns);
    double (*joules)(int64_t monotonic_ns);
    double call_ms;  /* what a call takes at least */
    int64_t tick_ms; /* of the counter; 0: 100 */
    bool is_blind;   /* the counter's sensor sees 25 ms of each 100 ms */
    bool has_no_log, has_no_counter;
    int64_t stops_ns;        /* from then on the counter stands still; 0: never */
    unsigned serial, driver; /* another card, or another version of its driver */
    /* kept by the library */
    int64_t calls_ns; /* that calls took in all */
    unsigned counter_reads, log_reads, field_reads;
} fake_card_state;

#endif

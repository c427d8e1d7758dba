/*
 * Time without waiting: a discrete-event clock for tests of threads that sleep.
 *
 * Once virtual_clock_use() was called, pj_clock_ns() stands still while threads compute (but for
 * 100 ns per reading) and jumps to the next wake-up when every thread of the program waits: in a
 * sleep, for a condition, for a mutex or for the end of a thread. Sleepers wake one at a time and
 * in the order of their times, so that a test's result depends on the machine and its load by no
 * more than the order of a few readings, and takes only the time of its computations.
 *
 * The linker's --wrap puts this in the place of the program's own calls (meson.build names them),
 * so the product has no hook for it. CPU times stay real; threads that wait in poll() or read()
 * count as running, so time stands still for them.
 */
#ifndef PJ_TEST_VIRTUAL_CLOCK_H
#define PJ_TEST_VIRTUAL_CLOCK_H

/* To be called before the program starts threads. Without effect where the linker cannot wrap and
 * under the thread sanitizer, which should see the threads as they really run. */
void virtual_clock_use(void);

#endif

/* Handlers of the signals that end a command. */
#include "cli/interrupt.h"

#include "cli/options.h"
#include "record/recover.h"

#include <signal.h>
#include <unistd.h>

_Atomic bool pj_interrupted;

static void interrupt_take(int number)
{
    if (pj_interrupted) {
        pj_recovery_interrupted();
        _exit(PJ_EXIT_INTERRUPTED);
    }
    pj_interrupted = true;
}

static void interrupt_end(int number)
{
    pj_recovery_interrupted();
    signal(number, SIG_DFL);
    raise(number);
}

void pj_interrupt_catch_recovery(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt_end}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
}

void pj_interrupt_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = interrupt_take}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], &action, &before) == 0 && signals[i] == SIGHUP &&
            before.sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before, NULL);
}

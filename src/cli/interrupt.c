/* Handlers of the signals that end a command. */
#include "cli/interrupt.h"

#include "cli/options.h"

#include <signal.h>
#include <unistd.h>

_Atomic bool pj_interrupted;

static void interrupt_take(int number)
{
    if (pj_interrupted) _exit(PJ_EXIT_INTERRUPTED);
    pj_interrupted = true;
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

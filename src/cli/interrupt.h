/* Ctrl-C and termination, for commands that store or clean up before they end. */
#ifndef PJ_CLI_INTERRUPT_H
#define PJ_CLI_INTERRUPT_H

#include <stdbool.h>

extern _Atomic bool pj_interrupted;

/* From now on SIGINT, SIGTERM and, unless the caller ignores it (nohup), SIGHUP set the flag. The
 * second signal ends the process at once; a run's spool stays. */
void pj_interrupt_catch(void);
/* For a command that these signals end at once: does not count its recovery as a crash. */
void pj_interrupt_catch_recovery(void);

#endif

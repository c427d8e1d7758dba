/* Where the linker cannot wrap functions, tests run in real time. */
#include "virtual_clock.h"

void virtual_clock_use(void) {}

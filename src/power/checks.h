/* Consistency checks at the end of every run: parts against the rail that contains them, two
 * measurements of one quantity against each other, sensors that never moved or stopped moving. Each
 * finding is one sentence with its figures and names the rail whose uncertainty it raises. */
#ifndef PJ_POWER_CHECKS_H
#define PJ_POWER_CHECKS_H

#include "power/curve.h"

enum { PJ_FINDINGS_MAX = 64, PJ_FINDING_TEXT_BYTES = 256 };

typedef struct pj_finding {
    const char *code; /* "children_exceed_rail", "sensors_disagree", ... */
    char text[PJ_FINDING_TEXT_BYTES];
    uint32_t rail;
    double excess; /* relative error that the rail's energy may have; NAN: unknown */
    /* the rail whose energy a counter that does not move has, plus 1; 0: it keeps its own */
    uint32_t substitute;
} pj_finding;

/* Checks an interval of a second or more; `curves` by rail, NULL where there is none. Returns the
 * number of findings. Pure: same curves, same findings. */
uint32_t pj_rails_check(const pj_rail *rails, uint32_t count, const pj_curve *const *curves,
                        int64_t begin_ns, int64_t end_ns, pj_finding findings[PJ_FINDINGS_MAX]);
/* Of a window, whose energies can still be replaced: also where a counter does not move beside a
 * power reading of its own. */
uint32_t pj_rails_check_window(const pj_rail *rails, uint32_t count, const pj_curve *const *curves,
                               int64_t begin_ns, int64_t end_ns,
                               pj_finding findings[PJ_FINDINGS_MAX]);

#endif

/* Words of the vocabulary as the database and the API spell them. */
#include <perjoule.h>

const char *pj_phase_name(pj_phase phase)
{
    static const char *const names[PJ_PHASE_COUNT] = {"idle", "pre_inference", "prefill", "decode",
                                                      "post_inference"};
    return (unsigned)phase < PJ_PHASE_COUNT ? names[phase] : "unknown";
}

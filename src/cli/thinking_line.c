/* Tokens of reasoning: how many, their time and energy. */
#include "cli/thinking_line.h"

#include <math.h>
#include <string.h>

pj_text pj_thinking_line(const pj_run_info *info)
{
    pj_text text = {""};
    double share = info->thinking_mj / info->request_mj;
    if (isnan(info->thinking_tokens)) return text;
    snprintf(text.s, sizeof text.s, "%.0f of %llu tokens in %s", info->thinking_tokens,
             (unsigned long long)info->output_tokens, pj_time_text(info->thinking_ms).s);
    size_t used = strlen(text.s);
    if (!isnan(info->thinking_mj))
        snprintf(text.s + used, sizeof text.s - used, ", %s",
                 pj_interval_text(info->thinking_mj, info->thinking_sd_mj).s);
    used = strlen(text.s);
    if (!isnan(share))
        snprintf(text.s + used, sizeof text.s - used, ", %.0f %% of the request", 100 * share);
    return text;
}

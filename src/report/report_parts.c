/* What reports have in common: figures as text, and how far they can be trusted. */
#include "report/report_parts.h"

#include "base/decimal.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void pj_report_four_digits(char *out, size_t bytes, double value)
{
    bool large = fabs(value) >= 1000 && fabs(value) < 1e15;
    snprintf(out, bytes, large ? "%.0f" : "%.4g", value);
}

void pj_report_rounded(char *out, size_t bytes, double value, double reach)
{
    bool known = reach >= 1e-5 && reach < 100;
    if (isnan(value))
        snprintf(out, bytes, "–");
    else if (known)
        snprintf(out, bytes, "%.*f", pj_decimals_for(reach), value);
    else
        pj_report_four_digits(out, bytes, value);
}

void pj_report_figure(char *out, size_t bytes, double value, double reach, const char *unit)
{
    char digits[64], half[32];
    pj_report_rounded(digits, sizeof digits, value, reach);
    snprintf(half, sizeof half, reach < 100 ? "%.2g" : "%.0f", reach);
    if (isnan(value))
        snprintf(out, bytes, "unavailable");
    else if (isnan(reach))
        snprintf(out, bytes, "%s %s", digits, unit);
    else
        snprintf(out, bytes, "%s ± %s %s", digits, half, unit);
}

void pj_report_number_cell(pj_document *d, double value)
{
    char digits[64];
    pj_report_rounded(digits, sizeof digits, value, NAN);
    pj_document_cell(d, "%s", digits);
}

void pj_report_trust(pj_document *d, const json_t *run, const char *of)
{
    size_t i;
    const json_t *rail;
    char partial[128] = "";
    json_array_foreach(json_object_get(run, "partial_rails"), i, rail)
        snprintf(partial + strlen(partial), sizeof partial - strlen(partial), "%s%s",
                 i ? ", " : "; the total lacks ", json_string_value(rail));
    double disturbed = pj_member_number(run, "disturbed_share");
    pj_document_text(d, "%sEnergy is %s (%s)%s; attribution by %s%s; recorded on %s, %s.", of,
                     pj_member_text(run, "energy_source"),
                     *pj_member_text(run, "power_sources") ? pj_member_text(run, "power_sources")
                                                           : "no sensor",
                     partial, pj_member_text(run, "method"),
                     isnan(disturbed)  ? ""
                     : disturbed > 0.1 ? "; more than a tenth of the energy is in disturbed tokens"
                                       : "; the machine did not disturb it much",
                     pj_member_text(run, "machine"), pj_member_text(run, "created_at"));
}

void pj_report_method(pj_document *d, const char *comparison)
{
    pj_document_heading(d, "Method");
    pj_document_text(
        d,
        "Each sensor's readings become one energy curve, and the energy of an interval is the "
        "curve's difference over it. Energy below the token is shared by one regression over "
        "all sensor windows, conditioned on the totals, so that parts sum to the whole. "
        "The request leaves out loading the model and idle gaps. Intervals are 95 %% and hold "
        "noise, the sensor's delay and window, and its calibration, which cancels on one machine."
        "%s%s",
        *comparison ? " " : "", comparison);
}

/* perjoule report: a run, a comparison or an experiment as a self-contained document. */
#include "cli/stored.h"
#include "report/disclosure.h"
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool report_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static pj_status report_write_out(const char *path, const pj_buffer *out, pj_error *err)
{
    FILE *file = path ? fopen(path, "wb") : stdout;
    if (!file) return pj_fail_errno(err, errno, "cannot write %s", path);
    bool whole = fwrite(out->data, 1, out->length, file) == out->length;
    whole &= fflush(file) == 0;
    if (path) whole &= fclose(file) == 0;
    return whole ? PJ_OK
                 : pj_fail(err, PJ_E_IO, "cannot write %s: is the disk full?",
                           path ? path : "to standard output");
}

static pj_status report_disclosure(pj_store *store, const pj_report_request *report,
                                   pj_disclosure_format format, const pj_disclosure_terms *terms,
                                   pj_buffer *out, pj_error *err)
{
    pj_json json;
    pj_disclosure_request request = {report->ids, report->count, report->experiment, format,
                                     *terms};
    pj_json_init(&json, out);
    pj_status status = pj_disclosure_write(store, &request, &json, err);
    pj_buffer_char(out, '\n');
    return status == PJ_OK ? pj_buffer_status(out, "a report", err) : status;
}

static int run_report(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL, *experiment = NULL, *path = NULL, *format = NULL;
    pj_price_options prices = PJ_PRICES_NONE;
    pj_disclosure_terms terms = {.pue = NAN, .embodied_kg = NAN, .lifetime_years = NAN};
    const pj_option options[] = {
        {"experiment", 0, PJ_OPTION_TEXT, &experiment, "NAME",
         "report an experiment instead of runs"},
        {"output", 'o', PJ_OPTION_TEXT, &path, "FILE",
         "write to a file; its ending (.html, .md) is the format (default, and -: standard output)",
         .rule = pj_rule_new_file_or_output},
        {"format", 0, PJ_OPTION_CHOICE, &format, "FORMAT",
         "html (default), md, or JSON for others: cyclonedx (1.7), spdx (3.0.1), sci (per output "
         "token), eu (model documentation form), inferencex",
         .choices = "html md cyclonedx spdx sci eu inferencex"},
        {"pue", 0, PJ_OPTION_DOUBLE, &terms.pue, "X",
         "energy of the facility / of the machine, for the JSON formats", 1, 10, .needs = "format"},
        {"embodied-kg", 0, PJ_OPTION_DOUBLE, &terms.embodied_kg, "KG",
         "CO2 equivalent of making the machine, for sci", 0, 1e9, .needs = "lifetime-years"},
        {"lifetime-years", 0, PJ_OPTION_DOUBLE, &terms.lifetime_years, "Y",
         "over which that is spread", 0.1, 100, .needs = "embodied-kg"},
        pj_price_option(&prices, 1, "format"),
        pj_price_option(&prices, 2, "format"),
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (experiment ? positional > 0 : positional > 4)
        return pj_command_usage(command, "give 1 to 4 runs, or --experiment NAME");
    if (path && strcmp(path, "-") == 0) path = NULL;
    if (path && !format && !report_ends_with(path, ".html") && !report_ends_with(path, ".md"))
        return pj_command_usage(command,
                                "the name of the file must end in .html or .md, or give --format");
    char last[] = "last";
    const char *ids[4] = {last};
    for (int i = 0; i < positional; i++) ids[i] = argv[1 + i];
    pj_report_request request = {.ids = ids,
                                 .count = experiment   ? 0
                                          : positional ? (uint32_t)positional
                                                       : 1,
                                 .experiment = experiment,
                                 .html = format ? strcmp(format, "html") == 0
                                                : !path || report_ends_with(path, ".html")};
    int disclosure = format ? pj_disclosure_parse(format) : -1;
    if (disclosure < 0 && (prices.region || !isnan(prices.g_per_kwh) || !isnan(terms.pue) ||
                           !isnan(terms.embodied_kg)))
        return pj_command_usage(command, "--region, --g-per-kwh, --pue and --embodied-kg are for "
                                         "the JSON formats of --format");
    pj_store *store = NULL;
    pj_error err = {0};
    pj_buffer out;
    pj_buffer_init(&out, PJ_REPORT_MAX_BYTES);
    terms.g_per_kwh = pj_prices_get(&prices).co2_g_per_kwh;
    terms.g_is_default = !prices.region && isnan(prices.g_per_kwh);
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK && disclosure >= 0)
        status = report_disclosure(store, &request, (pj_disclosure_format)disclosure, &terms, &out,
                                   &err);
    else if (status == PJ_OK)
        status = pj_report_make(store, &request, &out, &err);
    if (status == PJ_OK) status = report_write_out(path, &out, &err);
    pj_buffer_fini(&out);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_report = {
    .name = "report",
    .summary = "a run, a comparison or an experiment as a document",
    .run = run_report,
    .usage = "[options] [RUN...] | --experiment NAME",
    .text =
        "HTML is the dashboard's view of it in one file with all of its data: it opens offline, "
        "asks no server, and prints. Markdown is for mail and pull requests: verdict, how far the "
        "figures can be trusted, figures with 95 % intervals, and the commands that repeat it. The "
        "numbers are those of the API. The default is the last run. The JSON formats have the energy "
        "of requests, gross, with its 95 % interval and boundary; runs with equal settings are one "
        "measurement. PUE and embodied emissions are null unless given: a run does not know them.",
    .examples = "perjoule report -o run.html\nperjoule report last~1 last -o comparison.html\n"
                "perjoule report --experiment sweep -o sweep.md\n"
                "perjoule report --format cyclonedx -o bom.json\n"
                "perjoule report --format sci --region eu --pue 1.2 --embodied-kg 1500 "
                "--lifetime-years 4\n",
};

/* perjoule export: writes a run as a file for other programs. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "store/export.h"

#include "base/error.h"
#include "base/text.h"
#include "http/gzip.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GZIP_LEVEL = 6 };

static bool write_file(void *context, const char *bytes, size_t count)
{
    return pj_write_output(context, bytes, count);
}

/* A folded stack on a terminal is text to read; everything else stays byte by byte. */
static bool write_terminal(void *context, const char *bytes, size_t count)
{
    pj_print_safe(context, bytes, count);
    return !ferror((FILE *)context);
}

/* To a file whose name ends in .gz, compressed. */
static pj_status export_into(pj_store *store, const char *id, pj_export_format format,
                             const char *path, FILE *file, pj_error *err)
{
    pj_gzip *gzip;
    if (!pj_ends_with(path, ".gz"))
        return pj_store_export(store, id, format, write_file, file, err);
    pj_status status = pj_gzip_new(GZIP_LEVEL, write_file, file, &gzip, err);
    if (status == PJ_OK) status = pj_store_export(store, id, format, pj_gzip_write, gzip, err);
    if (status == PJ_OK && !pj_gzip_finish(gzip))
        status = pj_fail(err, PJ_E_IO, "the export could not be written completely");
    pj_gzip_free(gzip);
    return status;
}

/* Writes to a temporary file in the same folder first, so that a failed export leaves no partial
 * file; but directly to special files, which must not be replaced. */
static pj_status export_to(pj_store *store, const char *id, pj_export_format format,
                           const char *path, pj_error *err)
{
    char part[4200];
    bool beside = !pj_file_is_special(path);
    if (snprintf(part, sizeof part, "%s%s", path, beside ? ".part" : "") >= (int)sizeof part)
        return pj_fail(err, PJ_E_INVALID, "the file's path is too long");
    FILE *file = fopen(part, "wb");
    if (!file) return pj_fail_errno(err, errno, "cannot write %s", path);
    pj_status status = export_into(store, id, format, path, file, err);
    if (status == PJ_E_IO && ferror(file))
        status = pj_fail_errno(err, errno, "cannot write %s", path);
    if (fclose(file) != 0 && status == PJ_OK)
        status = pj_fail_errno(err, errno, "cannot write %s", path);
    if (beside && status == PJ_OK && rename(part, path) != 0)
        status = pj_fail_errno(err, errno, "cannot write %s", path);
    if (beside && status != PJ_OK) unlink(part);
    return status;
}

static int run_export(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL, *format_name = "json", *output = NULL;
    const pj_option options[] = {
        {"format", 0, PJ_OPTION_CHOICE, &format_name, "FORMAT",
         "json, csv (a zip with one file per table), trace (Perfetto), speedscope or folded",
         .choices = "json csv trace speedscope folded", .old_letter = 'f'},
        {"output", 'o', PJ_OPTION_TEXT, &output, "FILE",
         "output file, compressed if its name ends in .gz (default: standard output for json and "
         "folded, else a file named after the run; -: standard output)",
         .rule = pj_rule_new_file_or_output},
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional != 1) return pj_command_usage(command, "name one run");
    int format = pj_export_parse(format_name);
    pj_store *store = NULL;
    pj_error err = {0};
    char id[PJ_UUID_BYTES], name[128];
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK) status = pj_store_resolve(store, argv[1], id, &err);
    if (status == PJ_OK) {
        pj_export_file_name((pj_export_format)format, id, name, sizeof name);
        bool is_text = format == PJ_EXPORT_JSON || format == PJ_EXPORT_FOLDED;
        if (!output) output = is_text ? "-" : name;
        if (strcmp(output, "-") == 0)
            status =
                pj_store_export(store, id, (pj_export_format)format,
                                isatty(STDOUT_FILENO) ? write_terminal : write_file, stdout, &err);
        else
            status = export_to(store, id, (pj_export_format)format, output, &err);
    }
    if (status == PJ_OK && strcmp(output, "-") != 0) pj_print(stdout, "%s\n", output);
    if (status == PJ_OK && fflush(stdout) != 0)
        status = pj_fail_errno(&err, errno, "cannot write to standard output");
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_export = {
    .name = "export",
    .summary = "write a run as JSON, CSV, trace or flame graph",
    .run = run_export,
    .usage = "[options] RUN",
    .text = "json is complete: perjoule import can read it. trace opens in Perfetto and "
            "chrome://tracing with power as counters. speedscope and folded are flame graphs of "
            "energy: width is microjoules, or microseconds where a run has no energy.",
    .examples = "perjoule export last -o run.json.gz\n"
                "perjoule export last --format csv\n"
                "perjoule export last --format trace -o run.trace.json\n",
};

#include "cli/rules.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/inputs.h"
#include "cli/secrets.h"
#include "cli/stored.h"
#include "engine/generation/engine.h"
#include "http/url.h"
#include "power/source.h"
#include "record/environment.h"
#include "serve/otlp.h"
#include "trace/generation_request.h"
#include "trace/run_data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ---- */

pj_status pj_rule_file(const char *path, pj_error *err)
{
    if (pj_dir_exists(path)) return pj_fail(err, PJ_E_INVALID, "this is a folder, not a file");
    return access(path, R_OK) == 0 ? PJ_OK : pj_fail_errno(err, errno, "cannot be read");
}

pj_status pj_rule_file_or_input(const char *path, pj_error *err)
{
    return strcmp(path, "-") == 0 ? PJ_OK : pj_rule_file(path, err);
}

pj_status pj_rule_new_file_or_output(const char *path, pj_error *err)
{
    char folder[4096] = ".";
    const char *name = strrchr(path, '/');
    if (strlen(path) >= sizeof folder) return pj_fail(err, PJ_E_INVALID, "the path is too long");
    if (name == path) strcpy(folder, "/");
    if (name && name > path) snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path);
    if (pj_dir_exists(path) || (name && !name[1]))
        return pj_fail(err, PJ_E_INVALID, "this is a folder, not a file");
    if (!pj_dir_exists(folder)) return pj_fail(err, PJ_E_INVALID, "there is no folder %s", folder);
    bool is_new = access(path, F_OK) != 0;
    return access(is_new ? folder : path, W_OK) == 0
               ? PJ_OK
               : pj_fail_errno(err, errno, "cannot be written");
}

pj_status pj_rule_new_file(const char *path, pj_error *err)
{
    if (strcmp(path, "-") == 0)
        return pj_fail(err, PJ_E_INVALID,
                       "must be a file: standard output is for what the command prints");
    return pj_rule_new_file_or_output(path, err);
}

pj_status pj_rule_folder(const char *path, pj_error *err)
{
    if (pj_dir_exists(path)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   pj_file_exists(path) ? "is not a folder" : "there is no such folder");
}

pj_status pj_rule_database(const char *path, pj_error *err)
{
    struct stat about;
    if (stat(path, &about) != 0 || S_ISREG(about.st_mode)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   S_ISDIR(about.st_mode) ? "this is a folder: name a file in it"
                                          : "this is a device or a pipe, not a file");
}

/* ---- addresses ---- */

pj_status pj_rule_server(const char *text, pj_error *err)
{
    pj_url url;
    return pj_url_parse(text, PJ_URL_HTTP_PORT, &url, err);
}

pj_status pj_rule_server_or_tls(const char *text, pj_error *err)
{
    pj_url url;
    bool is_tls;
    return pj_url_parse_tls(text, &url, &is_tls, err);
}

pj_status pj_rule_listen(const char *address, pj_error *err)
{
    pj_url url;
    return pj_url_parse_listen(address, &url, err);
}

pj_status pj_rule_host(const char *name, pj_error *err)
{
    pj_url url = {0};
    if (pj_url_take_authority(name, strlen(name), &url)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be a host's name, as in energy.example.org");
}

pj_status pj_rule_origin(const char *origin, pj_error *err)
{
    const char *host = strstr(origin, "://");
    if (host && host > origin && pj_rule_host(host + 3, err) == PJ_OK) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be an origin, as in http://localhost:5173");
}

/* ---- texts ---- */

pj_status pj_rule_time(const char *text, pj_error *err)
{
    int64_t when;
    if (pj_clock_parse_iso(text, &when)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "must be a date or time such as 2026-01-31 or 2026-01-31T12:00:00Z");
}

pj_status pj_rule_age(const char *text, pj_error *err)
{
    if (pj_age_parse(text) >= 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be an age such as 12h, 30d, 4w or 1y");
}

pj_status pj_rule_counts(const char *list, pj_error *err)
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += at != list;
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 9 || (at[digits] && at[digits] != ','))
            return pj_fail(err, PJ_E_INVALID, "must be whole numbers, separated by commas");
    }
    return PJ_OK;
}

pj_status pj_rule_ids(const char *list, pj_error *err)
{
    int32_t *ids;
    uint32_t count;
    pj_status status = pj_ids_parse(list, &ids, &count, err);
    pj_free(ids);
    if (status == PJ_OK && count == 0) return pj_fail(err, PJ_E_INVALID, "contains no token id");
    return status;
}

pj_status pj_rule_assignment(const char *text, pj_error *err)
{
    const char *equals = strchr(text, '=');
    return equals && equals > text ? PJ_OK : pj_fail(err, PJ_E_INVALID, "must be NAME=VALUE");
}

pj_status pj_rule_power(const char *list, pj_error *err)
{
    pj_power_list parsed;
    if (strstr(list, ",token=")) pj_secrets_warn("--power", "PERJOULE_TOKEN");
    return pj_power_list_parse(list, &parsed, err);
}

pj_status pj_rule_session(const char *id, pj_error *err)
{
    if (pj_session_id_is_valid(id)) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be " PJ_SESSION_ID_RULE);
}

pj_status pj_rule_bias(const char *text, pj_error *err)
{
    const pj_request_field *f = pj_request_field_find("logit_bias");
    char *end, *last;
    long id = strtol(text, &end, 10);
    double bias = end > text && *end == '=' && end[1] ? strtod(end + 1, &last) : NAN;
    if (id >= 0 && id <= INT32_MAX && bias >= f->least && bias <= f->most && !*last) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID,
                   "must be a token's id and a number from %g to %g, as in 42=-100", f->least,
                   f->most);
}

/* ---- the environment ---- */

pj_status pj_rules_check_environment(pj_error *err)
{
    static const pj_variable variables[] = {
        {"PERJOULE_DB", pj_rule_database},     {"PERJOULE_FALLBACK", pj_rule_database},
        {"PERJOULE_ISA", pj_engine_check_isa}, {"PERJOULE_MODELS", pj_rule_folder},
        {"PERJOULE_OTLP", pj_otlp_check_url},
    };
    pj_status status = pj_environment_check(err);
    if (status != PJ_OK) return status;
    return pj_environment_check_these(variables, sizeof variables / sizeof *variables, err);
}

#include "net/gate.h"

#include "base/sha256.h"
#include "http/url.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { NAME_BYTES = 256 };

static bool is_address(const char *name)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool listed(const char *const *list, const char *text)
{
    for (; list && *list; list++)
        if (strcasecmp(*list, text) == 0) return true;
    return false;
}

static bool is_own_name(const char *name)
{
    char own[NAME_BYTES] = "", local[NAME_BYTES + 8];
    if (gethostname(own, sizeof own - 1) != 0 || !own[0]) return false;
    snprintf(local, sizeof local, "%s.local", own);
    return strcasecmp(name, own) == 0 || strcasecmp(name, local) == 0;
}

bool pj_gate_host(const pj_gate *gate, const char *host_header)
{
    pj_url url;
    const char *name = url.host;
    if (!host_header || !pj_url_take_authority(host_header, strlen(host_header), &url))
        return false;
    if (pj_host_is_loopback(name) || strcasecmp(name, gate->host) == 0) return true;
    if (listed(gate->extra_hosts, name)) return true;
    /* An IP address in Host was typed or configured by someone; DNS rebinding needs a name. */
    return !gate->loopback && (is_address(name) || is_own_name(name));
}

bool pj_gate_origin(const pj_gate *gate, const char *origin, const char *host_header)
{
    if (listed(gate->extra_origins, origin)) return true;
    const char *authority = strncasecmp(origin, "http://", 7) == 0    ? origin + 7
                            : strncasecmp(origin, "https://", 8) == 0 ? origin + 8
                                                                      : NULL;
    return authority && host_header && strcasecmp(authority, host_header) == 0;
}

/* Compares all of `given`, so that timing does not reveal where it differs. */
static bool equal_in_constant_time(const char *given, const char *wanted)
{
    size_t given_bytes = strlen(given), wanted_bytes = strlen(wanted);
    volatile unsigned difference = given_bytes != wanted_bytes;
    for (size_t i = 0; i < given_bytes; i++)
        difference |=
            (unsigned char)given[i] ^ (unsigned char)wanted[wanted_bytes ? i % wanted_bytes : 0];
    return difference == 0;
}

bool pj_gate_token(const pj_gate *gate, const char *authorization, const char *parameter)
{
    if (!gate->token) return true;
    if (authorization && strncasecmp(authorization, "Bearer ", 7) == 0)
        return equal_in_constant_time(authorization + 7, gate->token);
    return parameter && equal_in_constant_time(parameter, gate->token);
}

const char *pj_join_token_secret(const char *token)
{
    size_t name = strcspn(token, "=");
    return name > 0 && token[name] && token[name + 1 + strspn(token + name + 1, "=")]
               ? token + name + 1
               : token;
}

static bool join_token_is_of(const char *token, const char *machine)
{
    const char *secret = pj_join_token_secret(token);
    if (secret == token) return true;
    size_t bytes = (size_t)(secret - token) - 1;
    return strlen(machine) == bytes && memcmp(token, machine, bytes) == 0;
}

bool pj_gate_join(const pj_gate *gate, const char *authorization, const char *machine)
{
    bool is_bearer = authorization && strncasecmp(authorization, "Bearer ", 7) == 0;
    bool may = false;
    if (!gate->join_tokens || !gate->join_tokens[0])
        return pj_gate_token(gate, authorization, NULL);
    for (const char *const *t = gate->join_tokens; *t && is_bearer; t++)
        if (join_token_is_of(*t, machine))
            may |= equal_in_constant_time(authorization + 7, pj_join_token_secret(*t));
    return may;
}

static void digest(const char *purpose, const char *token, char text[PJ_SHA256_TEXT_BYTES])
{
    char inner[PJ_SHA256_TEXT_BYTES], both[2 * PJ_SHA256_TEXT_BYTES];
    pj_sha256_text(token, strlen(token), inner);
    int n = snprintf(both, sizeof both, "%s %s", purpose, inner);
    pj_sha256_text(both, (size_t)n, text);
}

bool pj_gate_cookie_name(const pj_gate *gate, char name[PJ_COOKIE_NAME_BYTES])
{
    char digits[PJ_SHA256_TEXT_BYTES];
    if (!gate->token || !gate->sessions) return false;
    digest("name", gate->token, digits);
    snprintf(name, PJ_COOKIE_NAME_BYTES, "perjoule_%.12s", digits);
    return true;
}

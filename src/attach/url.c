/* Parsing addresses of servers. */
#include "attach/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool take_port(const char *text, size_t length, int *port)
{
    long value = 0;
    if (length == 0 || length > 5) return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (text[i] - '0');
    }
    *port = (int)value;
    return value >= 0 && value <= 65535;
}

static bool is_host(const char *host)
{
    if (!*host) return false;
    for (const char *c = host; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127 || strchr("/?#@\\\"<>", *c)) return false;
    return true;
}

/* "host", "host:port", "[v6]", "[v6]:port". */
static bool take_authority(const char *text, size_t length, pj_url *url)
{
    const char *end = text + length, *host = text, *host_end, *port = NULL;
    if (length && *text == '[') {
        host = text + 1;
        host_end = memchr(host, ']', length - 1);
        if (!host_end) return false;
        if (host_end + 1 < end && host_end[1] != ':') return false;
        if (host_end + 1 < end) port = host_end + 2;
    } else {
        host_end = memchr(text, ':', length);
        if (host_end)
            port = host_end + 1;
        else
            host_end = end;
    }
    size_t host_length = (size_t)(host_end - host);
    if (host_length >= sizeof url->host) return false;
    memcpy(url->host, host, host_length);
    url->host[host_length] = 0;
    return !port || take_port(port, (size_t)(end - port), &url->port);
}

/* The part after "scheme://". */
static pj_status parse_rest(const char *text, pj_url *url, pj_error *err)
{
    size_t length = strcspn(text, "/?#");
    if (!take_authority(text, length, url) || !is_host(url->host) || url->port == 0)
        return pj_fail(err, PJ_E_INVALID, "%.200s is no address of a server: use http://host:port",
                       text);
    size_t path = strcspn(text + length, "?#");
    if (text[length + path])
        return pj_fail(err, PJ_E_INVALID, "%.200s: an address of a server has no query", text);
    while (path && text[length + path - 1] == '/') path--;
    if (path >= sizeof url->prefix)
        return pj_fail(err, PJ_E_INVALID, "%.200s: the path is longer than %d bytes", text,
                       PJ_URL_PATH_BYTES - 1);
    for (size_t i = 0; i < path; i++)
        if ((unsigned char)text[length + i] <= ' ' || (unsigned char)text[length + i] >= 127)
            return pj_fail(err, PJ_E_INVALID,
                           "the path of the address holds a byte that a URL "
                           "may not hold; write it as %%XX");
    memcpy(url->prefix, text + length, path);
    return PJ_OK;
}

pj_status pj_url_parse(const char *text, pj_url *url, pj_error *err)
{
    *url = (pj_url){.port = 80};
    if (strncasecmp(text, "https://", 8) == 0)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%.200s: perjoule speaks http, not https; an engine whose energy can be "
                       "measured runs on this machine, where plain http is enough",
                       text);
    if (strncasecmp(text, "http://", 7) == 0)
        text += 7;
    else if (strstr(text, "://"))
        return pj_fail(err, PJ_E_INVALID, "%.200s is no address of a server: use http://host:port",
                       text);
    return parse_rest(text, url, err);
}

pj_status pj_url_parse_tls(const char *text, pj_url *url, bool *is_tls, pj_error *err)
{
    *is_tls = strncasecmp(text, "https://", 8) == 0;
    if (!*is_tls) return pj_url_parse(text, url, err);
    *url = (pj_url){.port = 443};
    return parse_rest(text + 8, url, err);
}

pj_status pj_url_parse_listen(const char *text, pj_url *url, pj_error *err)
{
    *url = (pj_url){.port = -1};
    if (*text == ':') {
        snprintf(url->host, sizeof url->host, "127.0.0.1");
        if (take_port(text + 1, strlen(text + 1), &url->port)) return PJ_OK;
    } else if (take_authority(text, strlen(text), url) && is_host(url->host) && url->port >= 0) {
        return PJ_OK;
    }
    return pj_fail(err, PJ_E_INVALID, "%.200s is no place to listen at: use HOST:PORT", text);
}

void pj_url_authority(const pj_url *url, char *text, size_t bytes)
{
    bool v6 = strchr(url->host, ':');
    snprintf(text, bytes, v6 ? "[%s]:%d" : "%s:%d", url->host, url->port);
}

bool pj_url_is_loopback(const pj_url *url)
{
    int a, b, c, d;
    char rest;
    if (strcasecmp(url->host, "localhost") == 0 || strcmp(url->host, "::1") == 0) return true;
    return sscanf(url->host, "%3d.%3d.%3d.%3d%c", &a, &b, &c, &d, &rest) == 4 && a == 127;
}

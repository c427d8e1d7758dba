#include "http/url.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* An empty port is no port (RFC 3986, 3.2.3). */
static bool url_take_port(const char *text, size_t length, int *port)
{
    int value = 0;
    if (length > 5 || strspn(text, "0123456789") < length) return false;
    for (size_t i = 0; i < length; i++) value = value * 10 + (text[i] - '0');
    if (length) *port = value;
    return value <= 65535;
}

static bool url_is_host(const char *host, bool is_v6)
{
    if (!*host || (is_v6 && !strchr(host, ':'))) return false;
    for (const char *c = host; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127 || strchr("/?#@\\\"<>", *c)) return false;
    return true;
}

bool pj_url_take_authority(const char *text, size_t length, pj_url *url)
{
    const char *end = text + length;
    bool is_v6 = length && *text == '[';
    const char *host = text + is_v6;
    const char *host_end = memchr(host, is_v6 ? ']' : ':', (size_t)(end - host));
    if (is_v6 && !host_end) return false;
    if (!host_end) host_end = end;
    const char *port = host_end + is_v6;
    size_t host_length = (size_t)(host_end - host);
    if (host_length >= sizeof url->host || (port < end && *port != ':')) return false;
    memcpy(url->host, host, host_length);
    url->host[host_length] = 0;
    return url_is_host(url->host, is_v6) &&
           (port == end || url_take_port(port + 1, (size_t)(end - port) - 1, &url->port));
}

/* The part after "scheme://". */
static pj_status url_parse_rest(const char *text, pj_url *url, pj_error *err)
{
    size_t length = strcspn(text, "/?#");
    if (memchr(text, '@', length)) /* not repeated: messages end up in logs */
        return pj_fail(err, PJ_E_INVALID,
                       "a server address must not contain a user name or password");
    if (!pj_url_take_authority(text, length, url) || url->port == 0)
        return pj_fail(err, PJ_E_INVALID, "%.200s is not a server address: use http://host:port",
                       text);
    size_t path = strcspn(text + length, "?#");
    if (text[length + path])
        return pj_fail(err, PJ_E_INVALID, "%.*s: a server address must not contain a query",
                       (int)(length + path), text);
    while (path && text[length + path - 1] == '/') path--;
    if (path >= sizeof url->prefix)
        return pj_fail(err, PJ_E_INVALID, "%.200s: the path is longer than %d bytes", text,
                       PJ_URL_PATH_BYTES - 1);
    for (size_t i = 0; i < path; i++)
        if ((unsigned char)text[length + i] <= ' ' || (unsigned char)text[length + i] >= 127)
            return pj_fail(err, PJ_E_INVALID,
                           "the path contains a byte that is not allowed in a "
                           "URL; write it as %%XX");
    memcpy(url->prefix, text + length, path);
    return PJ_OK;
}

pj_status pj_url_parse(const char *text, int default_port, pj_url *url, pj_error *err)
{
    *url = (pj_url){.port = default_port};
    if (strncasecmp(text, "https://", 8) == 0)
        return pj_fail(err, PJ_E_UNSUPPORTED,
                       "%.200s: only http is supported, not https; an engine whose energy can be "
                       "measured runs on this machine, where plain http is enough",
                       text);
    if (strncasecmp(text, "http://", 7) == 0)
        text += 7;
    else if (strstr(text, "://"))
        return pj_fail(err, PJ_E_INVALID, "%.200s is not a server address: use http://host:port",
                       text);
    return url_parse_rest(text, url, err);
}

pj_status pj_url_parse_tls(const char *text, pj_url *url, bool *is_tls, pj_error *err)
{
    *is_tls = strncasecmp(text, "https://", 8) == 0;
    if (!*is_tls) return pj_url_parse(text, PJ_URL_HTTP_PORT, url, err);
    *url = (pj_url){.port = 443};
    return url_parse_rest(text + 8, url, err);
}

pj_status pj_url_parse_listen(const char *text, pj_url *url, pj_error *err)
{
    char loopback[PJ_URL_AUTHORITY_BYTES];
    const char *place = text;
    *url = (pj_url){.port = -1};
    if (*text == ':') {
        snprintf(loopback, sizeof loopback, "127.0.0.1%s", text);
        place = loopback;
    }
    if (pj_url_take_authority(place, strlen(place), url) && url->port >= 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "%.200s is not an address to listen on: use HOST:PORT", text);
}

void pj_url_authority(const pj_url *url, char *text, size_t bytes)
{
    bool v6 = strchr(url->host, ':');
    snprintf(text, bytes, v6 ? "[%s]:%d" : "%s:%d", url->host, url->port);
}

bool pj_host_is_loopback(const char *host)
{
    static const unsigned char one[16] = {[15] = 1};
    unsigned char bytes[16];
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, bytes) == 1) return bytes[0] == 127;
    return inet_pton(AF_INET6, host, bytes) == 1 && memcmp(bytes, one, 16) == 0;
}

#include "cli/secrets.h"

#include "base/file.h"
#include "base/memory.h"
#include "cli/terminal.h"

#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20 };

static pj_status secrets_add(pj_secrets *s, const char *secret, pj_error *err)
{
    if (s->count == PJ_SECRETS_MAX)
        return pj_fail(err, PJ_E_FULL, "more than %d secrets", PJ_SECRETS_MAX);
    s->items[s->count++] = secret;
    return PJ_OK;
}

static pj_status secrets_add_lines(pj_secrets *s, pj_error *err)
{
    pj_status status = PJ_OK;
    for (char *line = s->text, *next; line && status == PJ_OK; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        if (*line && *line != '#') status = secrets_add(s, line, err);
    }
    return status;
}

pj_status pj_secrets_open(const pj_text_list *listed, const char *path, pj_secrets *s,
                          pj_error *err)
{
    size_t bytes = 0;
    pj_status status = PJ_OK;
    s->items = pj_alloc(PJ_SECRETS_MAX + 1, sizeof *s->items);
    if (!s->items) return pj_fail_memory(err, "secrets");
    for (int i = 0; listed && i < listed->count && status == PJ_OK; i++)
        status = secrets_add(s, listed->items[i], err);
    if (status == PJ_OK && path) status = pj_file_read(path, FILE_MAX_BYTES, &s->text, &bytes, err);
    if (status == PJ_OK && path && strlen(s->text) != bytes)
        return pj_fail(err, PJ_E_INVALID, "%s: contains a zero byte", path);
    return status == PJ_OK ? secrets_add_lines(s, err) : status;
}

void pj_secrets_close(pj_secrets *s)
{
    pj_free(s->text);
    pj_free(s->items);
    *s = (pj_secrets){0};
}

const char *pj_secrets_only(const pj_secrets *s, const char *path, pj_error *err)
{
    if (s->count == 1) return s->items[0];
    pj_fail(err, PJ_E_INVALID, "%s: must hold one secret on one line, but holds %d", path,
            s->count);
    return NULL;
}

void pj_secrets_warn(const char *option, const char *instead)
{
    pj_say("warning: the secret of %s is visible to other users of this machine: use %s", option,
           instead);
}

bool pj_secrets_in_url(const char *url)
{
    const char *host = url ? strstr(url, "://") : NULL;
    if (!host) return false;
    host += 3;
    size_t authority = strcspn(host, "/?#");
    const char *at = memchr(host, '@', authority);
    return at && memchr(host, ':', (size_t)(at - host));
}

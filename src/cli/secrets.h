/* Secrets that commands take: from files and the environment, which other users cannot see, unlike
 * a command line (`ps`). */
#ifndef PJ_CLI_SECRETS_H
#define PJ_CLI_SECRETS_H

#include "base/error.h"
#include "base/text_list.h"

enum { PJ_SECRETS_MAX = 4096 };

/* Secrets from the command line and from a file. */
typedef struct pj_secrets {
    char *text;         /* the file */
    const char **items; /* NULL-terminated; NULL: none */
    int count;
} pj_secrets;

/* Adds the listed secrets and the lines of the file (either may be NULL) without empty ones and
 * those that begin with '#'. Listed ones are borrowed. */
pj_status pj_secrets_open(const pj_text_list *listed, const char *path, pj_secrets *secrets,
                          pj_error *err);
void pj_secrets_close(pj_secrets *secrets);
/* For a file that holds one secret. Fails when it holds none or several. */
const char *pj_secrets_only(const pj_secrets *secrets, const char *path, pj_error *err);
/* Says that a secret was given on the command line, and what to use instead. */
void pj_secrets_warn(const char *option, const char *instead);
/* Whether the address contains a password: "http://user:password@host". */
bool pj_secrets_in_url(const char *url);

#endif

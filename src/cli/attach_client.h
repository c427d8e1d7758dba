/* `perjoule attach` as a client: sends prompts or a load to a server and reports the energy of the
 * requests. */
#ifndef PJ_CLI_ATTACH_CLIENT_H
#define PJ_CLI_ATTACH_CLIENT_H

#include "attach/dialect.h"
#include "cli/options.h"
#include "cli/secrets.h"
#include "record/session.h"
#include "requests/requests.h"

typedef struct pj_attach_args {
    const char *url, *model, *file, *prompts_file, *api, *listen, *token, *token_file, *header_file,
        *rule, *shape, *otlp;
    pj_session_options session;
    pj_requests_options recorded; /* what the options say of recorded requests */
    int64_t max_tokens, concurrency, requests, input_tokens, output_tokens, seed;
    double temperature;
    pj_text_list tags, headers, hosts, otlp_names, fields;
    bool no_store, json, headers_only;
    /* derived */
    pj_url address;
    char *header_lines; /* of requests; "" for none */
    pj_secrets header_secrets, token_secret;
    char no_power_text[512];
} pj_attach_args;

/* The options of requests without callbacks, for client and proxy. */
pj_requests_options pj_attach_requests(const pj_attach_args *args, const pj_remote_server *server,
                                       pj_session *session);

int pj_attach_client(const pj_command *command, const pj_attach_args *args, const char *positional);
int pj_attach_proxy(const pj_command *command, const pj_attach_args *args);

#endif

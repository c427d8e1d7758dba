/*
 * Which server answers at an address, and how a request is put to it. Servers that speak OpenAI's
 * API differ in what they can be asked for beside the text: llama-server tells its own clock with
 * every token, vLLM counts tokens with every chunk. Ollama's own API tells how long it loaded.
 */
#ifndef PJ_ATTACH_DIALECT_H
#define PJ_ATTACH_DIALECT_H

#include "attach/url.h"
#include "base/buffer.h"

typedef enum pj_server_kind {
    PJ_SERVER_OPENAI = 0, /* like it; nothing more is known */
    PJ_SERVER_LLAMA,
    PJ_SERVER_VLLM,
    PJ_SERVER_OLLAMA
} pj_server_kind;

typedef struct pj_remote_server {
    pj_server_kind kind;
    char engine[32];                 /* "llama-server", "vllm", "ollama", "sglang", "openai" */
    char model[128];                 /* the first one that it offers; "": it tells none */
    double weight_bytes, vocabulary; /* 0: not told */
    const char *prefix;              /* to be put in front of paths: "" or "/v1" */
} pj_remote_server;

/* Asks the server for its models; a server that does not say is PJ_SERVER_OPENAI. Fails when
 * nothing answers at the address. */
pj_status pj_server_find(const pj_url *url, const char *headers, pj_remote_server *server,
                         pj_error *err);
/* Reads an answer to /v1/models; for tests. */
void pj_server_read_models(const char *json, size_t bytes, pj_remote_server *server);

typedef struct pj_ask {
    const char *model, *prompt;
    size_t prompt_bytes;
    bool completion;    /* a text to go on with, instead of a message to answer */
    bool plain;         /* nothing beyond what every server knows */
    bool ignore_end;    /* so many tokens, whatever the model would say (where the server can) */
    int64_t max_tokens; /* 0: the server's default */
    double temperature; /* NAN: the server's default */
} pj_ask;

const char *pj_ask_path(const pj_remote_server *server, const pj_ask *ask);
void pj_ask_write(const pj_remote_server *server, const pj_ask *ask, pj_buffer *body);

#endif

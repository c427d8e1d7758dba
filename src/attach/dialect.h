/* Detects which server is at an address, and writes requests for it. OpenAI-compatible servers
 * differ in extensions: llama-server sends its own timings with every token, vLLM token counts with
 * every chunk; Ollama's own API reports its load time. */
#ifndef PJ_ATTACH_DIALECT_H
#define PJ_ATTACH_DIALECT_H

#include "base/buffer.h"
#include "http/url.h"

typedef enum pj_server_kind {
    PJ_SERVER_OPENAI = 0, /* OpenAI-compatible, otherwise unknown */
    PJ_SERVER_LLAMA,
    PJ_SERVER_VLLM,
    PJ_SERVER_OLLAMA
} pj_server_kind;

typedef struct pj_remote_server {
    pj_server_kind kind;
    char engine[32];                 /* "llama-server", "vllm", "ollama", "sglang", "openai" */
    char model[128];                 /* the first listed model; "": none */
    double weight_bytes, vocabulary; /* 0: unknown */
    const char *prefix;              /* prefix of paths: "" or "/v1" */
} pj_remote_server;

/* Requests the server's list of models; a server that cannot be identified is PJ_SERVER_OPENAI.
 * Fails when nothing answers at the address. */
pj_status pj_server_find(const pj_url *url, const char *headers, pj_remote_server *server,
                         pj_error *err);

typedef struct pj_ask {
    const char *model, *prompt;
    size_t prompt_bytes;
    bool completion;    /* a text to continue, instead of a chat message */
    bool plain;         /* without extensions */
    bool ignore_end;    /* generate max_tokens past the end token (where the server can) */
    int64_t max_tokens; /* 0: the server's default */
    double temperature; /* NAN: the server's default */
} pj_ask;

const char *pj_request_path(const pj_remote_server *server, const pj_ask *request);
void pj_request_write(const pj_remote_server *server, const pj_ask *request, pj_buffer *body);

#endif

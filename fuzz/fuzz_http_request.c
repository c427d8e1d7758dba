/* Whole requests, WebSocket handshakes and frames, against the real server without a port: no
 * input may crash it, and it must keep answering. */
#include "../tests/unit/net/made_service.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static made service;
static pj_hub *hub;
static pj_server *server;

static void stop(void)
{
    pj_server_close(server);
    pj_hub_close(hub);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t count;
    size_t got;
    if (!server) {
        made_init(&service);
        made_server_polled(&service, &hub, &server);
        atexit(stop);
    }
    if (size > 65536) return 0;
    free(made_talk_polled(server, data, size, &got));
    if (++count % 64 == 0) {
        static const char health[] = "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n";
        char *answer = made_talk_polled(server, health, sizeof health - 1, &got);
        if (made_status(answer) != 200) abort();
        free(answer);
    }
    return 0;
}

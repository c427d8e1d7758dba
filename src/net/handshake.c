#include "net/handshake.h"

#include "base/base64.h"
#include "http/head.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- SHA-1, only for the accept key: no security, it merely shows that the server read the
 * key - */

static uint32_t handshake_rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t h[5], const unsigned char *block)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = handshake_rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t t = handshake_rotate(a, 5) + f + e + w[i];
        e = d;
        d = c;
        c = handshake_rotate(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void pj_sha1(const void *bytes, size_t count, unsigned char digest[20])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const unsigned char *p = bytes;
    size_t left = count;
    for (; left >= 64; left -= 64, p += 64) sha1_block(h, p);
    unsigned char tail[128] = {0};
    size_t tail_bytes = left < 56 ? 64 : 128;
    if (left > 0) memcpy(tail, p, left);
    tail[left] = 0x80;
    for (int i = 0; i < 8; i++)
        tail[tail_bytes - 1 - (size_t)i] = (unsigned char)((uint64_t)count * 8 >> 8 * i);
    for (size_t i = 0; i < tail_bytes; i += 64) sha1_block(h, tail + i);
    for (int i = 0; i < 20; i++) digest[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* 16 bytes in base64: 22 characters, the last of which encodes four zero bits, and two equals
 * signs. */
static bool is_key(const char *key)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strlen(key) == 24 && strspn(key, letters) == 22 && strchr("AQgw", key[21]) &&
           strcmp(key + 22, "==") == 0;
}

bool pj_handshake_accept(const char *key, char accept[PJ_ACCEPT_BYTES])
{
    char text[64];
    unsigned char digest[20];
    pj_buffer encoded;
    if (!key || !is_key(key)) return false;
    int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    pj_sha1(text, (size_t)n, digest);
    pj_buffer_init(&encoded, PJ_ACCEPT_BYTES);
    pj_base64_write(&encoded, digest, sizeof digest);
    bool good = encoded.length == PJ_ACCEPT_BYTES - 1;
    if (good) memcpy(accept, encoded.data, PJ_ACCEPT_BYTES);
    pj_buffer_fini(&encoded);
    return good;
}

/* ---- the upgrade --------------------------------------------------------------------------- */

typedef struct upgrade {
    pj_hub *hub; /* NULL: a machine joins */
    pj_reader_options options;
    pj_relay *relay;
    char machine[PJ_RELAY_NAME_BYTES], key[PJ_RELAY_KEY_BYTES];
} upgrade;

/* Duplicates the socket and makes libmicrohttpd release its own: no thread and no request memory
 * stays with a WebSocket. */
static void handshake_hand_over(void *unused, struct MHD_Connection *connection, void *request,
                                const char *early, size_t early_bytes, MHD_socket socket,
                                struct MHD_UpgradeResponseHandle *handle)
{
    const pj_http *http = request;
    const upgrade *u = http->upgrade;
    int fd = dup(socket);
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
    if (fd >= 0 && u->relay)
        pj_relay_join(u->relay, u->machine, u->key, fd);
    else if (fd >= 0)
        pj_hub_add(u->hub, fd, &u->options, early, early_bytes);
}

static bool header_has(const pj_http *http, const char *name, const char *token)
{
    const char *value = pj_http_header(http, name);
    return value && pj_field_has(value, strlen(value), token);
}

static enum MHD_Result reply(pj_http *http, const upgrade *what)
{
    char accept[PJ_ACCEPT_BYTES];
    const char *version = pj_http_header(http, "Sec-WebSocket-Version");
    if (!header_has(http, "Connection", "upgrade") || !header_has(http, "Upgrade", "websocket")) {
        pj_http_add_header(http, "Upgrade", "websocket");
        return pj_http_problem(http, 426, "this is the live stream: open it as a WebSocket");
    }
    if (strcmp(http->method, "GET") != 0)
        return pj_http_problem(http, 400, "a WebSocket begins with GET");
    if (!version || strcmp(version, "13") != 0) {
        pj_http_add_header(http, "Sec-WebSocket-Version", "13");
        return pj_http_problem(http, 426, "only version 13 of the WebSocket protocol is supported");
    }
    if (!pj_handshake_accept(pj_http_header(http, "Sec-WebSocket-Key"), accept))
        return pj_http_problem(http, 400, "Sec-WebSocket-Key must be 16 bytes in base64");
    if (what->hub && !pj_hub_has_room(what->hub))
        return pj_http_problem(http, 503, "too many live readers are connected");
    upgrade *u = pj_alloc(1, sizeof *u);
    if (!u) return MHD_NO;
    *u = *what;
    http->upgrade = u;
    struct MHD_Response *response = MHD_create_response_for_upgrade(handshake_hand_over, NULL);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Upgrade", "websocket");
    MHD_add_response_header(response, "Sec-WebSocket-Accept", accept);
    return pj_http_queue(http, 101, response);
}

enum MHD_Result pj_handshake_reply(pj_http *http, pj_hub *hub, const pj_reader_options *options)
{
    return reply(http, &(upgrade){.hub = hub, .options = *options});
}

enum MHD_Result pj_handshake_join(pj_http *http, pj_relay *relay, const char *machine,
                                  const char *key)
{
    upgrade u = {.relay = relay};
    if (!machine[0] || strlen(machine) >= sizeof u.machine)
        return pj_http_problem(http, 400, "machine must be a name of 1 to %d bytes",
                               PJ_RELAY_NAME_BYTES - 1);
    snprintf(u.machine, sizeof u.machine, "%s", machine);
    snprintf(u.key, sizeof u.key, "%s", key);
    return reply(http, &u);
}

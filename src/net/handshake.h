/* The WebSocket handshake (RFC 6455 section 4): from an HTTP request to a socket in the hub. */
#ifndef PJ_NET_HANDSHAKE_H
#define PJ_NET_HANDSHAKE_H

#include "net/http.h"
#include "net/hub.h"
#include "net/relay.h"

enum { PJ_ACCEPT_BYTES = 29 };

void pj_sha1(const void *bytes, size_t count, unsigned char digest[20]);
/* Computes Sec-WebSocket-Accept for a key. False: the key is not 16 bytes in base64. */
bool pj_handshake_accept(const char *key, char accept[PJ_ACCEPT_BYTES]);
/* The same handshake for a machine that joins: its socket goes to the relay. */
enum MHD_Result pj_handshake_join(pj_http *http, pj_relay *relay, const char *machine,
                                  const char *key);
/* Checks the request and upgrades; Host, Origin and token have been checked before. */
enum MHD_Result pj_handshake_reply(pj_http *http, pj_hub *hub, const pj_reader_options *options);

#endif

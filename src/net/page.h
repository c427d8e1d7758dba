/* The embedded dashboard: encodings, ETags, caching. */
#ifndef PJ_NET_PAGE_H
#define PJ_NET_PAGE_H

#include "net/assets.h"
#include "net/http.h"

/* The encoding to send for an Accept-Encoding header (NULL: absent): 'b' brotli, 'g' gzip, 'i'
 * identity. Only codings named (or matched by "*") with a weight above 0 are considered; of equal
 * weights the smaller body wins. */
char pj_page_encoding(const pj_asset *asset, const char *accept);
/* Whether If-None-Match (NULL: absent) contains the tag, which includes its quotes. */
bool pj_page_tag_matches(const char *if_none_match, const char *tag);
/* Answers a GET or HEAD for a dashboard file, or with a plain page when none is embedded. */
enum MHD_Result pj_page_reply(pj_http *http);

#endif

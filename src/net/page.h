/* The embedded page and its files: encodings, ETags, caching. */
#ifndef PJ_NET_PAGE_H
#define PJ_NET_PAGE_H

#include "net/assets.h"
#include "net/http.h"

/* The encoding to send to a client that said `accept` (NULL: nothing): 'b' brotli, 'g' gzip, 'i' as
 * it is. Only what is named (or meant by "*") with a weight above 0 is sent; of equal weights the
 * smaller body wins. */
char pj_page_encoding(const pj_asset *asset, const char *accept);
/* Whether If-None-Match (NULL: absent) names the tag, which comes with its quotes. */
bool pj_page_tag_matches(const char *if_none_match, const char *tag);
/* Answers a GET or HEAD for a file of the page, or with a plain page when none is embedded. */
enum MHD_Result pj_page_reply(pj_http *http);

#endif

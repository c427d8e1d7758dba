/* GET /metrics: the Prometheus text exposition. */
#ifndef PJ_NET_PROMETHEUS_H
#define PJ_NET_PROMETHEUS_H

#include "net/hub.h"
#include "net/service.h"

void pj_prometheus_write(const pj_metrics *metrics, const pj_hub *hub, pj_buffer *out);

/* Parts of an exposition. The name is without "perjoule_". */
void pj_prometheus_head(pj_buffer *out, const char *name, const char *type, const char *help);
void pj_prometheus_label(pj_buffer *out, const char *text); /* a label's value, escaped */
void pj_prometheus_value(pj_buffer *out, double number);    /* to the end of the line */

#endif

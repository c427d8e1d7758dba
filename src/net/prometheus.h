/* GET /metrics: the Prometheus text exposition. */
#ifndef PJ_NET_PROMETHEUS_H
#define PJ_NET_PROMETHEUS_H

#include "net/hub.h"
#include "net/service.h"

void pj_prometheus_write(const pj_metrics *metrics, const pj_hub *hub, pj_buffer *out);

#endif

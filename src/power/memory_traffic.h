/* Bytes that went to and from the memory of this machine, where its memory controllers' counters
 * can be read without root: on Apple Silicon that lets IOReport's group "AMC Stats" be subscribed
 * to. They are the whole machine's. */
#ifndef PJ_POWER_MEMORY_TRAFFIC_H
#define PJ_POWER_MEMORY_TRAFFIC_H

#include "power/source.h"

typedef struct pj_memory_traffic pj_memory_traffic;

pj_memory_traffic *pj_memory_traffic_open(const pj_power_env *env); /* NULL: not counted here */
void pj_memory_traffic_close(pj_memory_traffic *traffic);           /* NULL is allowed */
/* Since an arbitrary time; both NAN where a counter could not be read. Takes milliseconds. */
void pj_memory_traffic_read(pj_memory_traffic *traffic, double *read_bytes, double *written_bytes);

#endif

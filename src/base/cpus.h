/* CPUs: which ones this process may run on, in what order threads should occupy them, how many
 * threads they are worth, and their last-level cache. `root`: what /sys and /proc are below, "" for
 * the system's own. */
#ifndef PJ_BASE_CPUS_H
#define PJ_BASE_CPUS_H

enum { PJ_CPUS_MAX = 1024 };

/* CPUs this process may run on: their number, and the numbers themselves, ascending, in `cpus` (may
 * be NULL). */
int pj_cpu_allowed(int *cpus, int max);
/* Sorts `count` (at most PJ_CPUS_MAX) CPUs in the order in which threads should occupy them: one
 * hardware thread of every core before a second one of any, and faster cores first. Returns the
 * number of cores. */
int pj_cpu_order(const char *root, int *cpus, int count);
/* The CPUs this process may run on, in that order; returns their number. */
int pj_cpu_places(int cpus[PJ_CPUS_MAX], int *cores);
/* How many CPUs' time the control groups of this process grant it, rounded up; 0: no limit. */
int pj_cpu_quota(const char *root);
/* Threads to compute with where nobody says how many: one per core, within the quota. */
int pj_cpu_threads(void);
/* Bytes of the last-level cache that a CPU shares with its neighbours (one instance: a processor
 * may have several); NAN when unknown. */
double pj_cpu_cache_bytes(const char *root);

#endif

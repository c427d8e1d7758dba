/* Identifiers and checksums: UUIDv7 for runs, CRC-32C for the spool, FNV-1a for fingerprints. */
#ifndef PJ_BASE_IDS_H
#define PJ_BASE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_UUID_BYTES = 37 }; /* 36 characters and the NUL */

/* Version 7: sorts by time of creation; two from one process never collide or run backwards. */
void pj_uuid7(char text[PJ_UUID_BYTES]);
/* 256 random bits as 64 hexadecimal digits, for what nobody may guess; false: the system gives no
 * random numbers. */
enum { PJ_SECRET_BYTES = 65 };
bool pj_secret_make(char text[PJ_SECRET_BYTES]);
uint32_t pj_crc32c(uint32_t crc, const void *bytes, size_t count);  /* start with 0 */
uint64_t pj_hash64(uint64_t seed, const void *bytes, size_t count); /* FNV-1a; seed 0: the basis */

#endif

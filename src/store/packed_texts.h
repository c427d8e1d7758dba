/* Texts that packed rows repeat (packing.h): names of components and operations, methods, the JSON
 * of extra figures without its numbers. Table packed_texts has each of them once; rows have its
 * code, a blob of one or two bytes. Texts are never deleted; those beyond a limit are stored in the
 * rows, as they are. */
#ifndef PJ_STORE_PACKED_TEXTS_H
#define PJ_STORE_PACKED_TEXTS_H

#include "base/memory.h"
#include "store/sql.h"

enum { PJ_PACKED_CODE_BYTES = 2, PJ_PACKED_TEXTS = 4096, PJ_PACKED_SLOTS = 2 * PJ_PACKED_TEXTS };

/* What a store knows of the table. */
typedef struct pj_packed_texts {
    pj_store *store;
    pj_arena arena;
    pj_value *texts; /* in the order of their codes */
    uint32_t count;
    uint16_t slots[PJ_PACKED_SLOTS]; /* hash table: number of a text + 1 */
    bool is_read;
} pj_packed_texts;

/* As if nothing of the table were known: before a run is saved, since another process may have
 * added texts, and after a transaction that failed. */
void pj_packed_texts_forget(pj_packed_texts *texts);
/* Writes the code of a text or a text that is not valid UTF-8, which is stored if it is new, inside
 * a transaction that writes. Returns its length; 0: it has none. */
size_t pj_packed_texts_code(pj_packed_texts *texts, const pj_value *text,
                            char code[PJ_PACKED_CODE_BYTES]);
/* The text of a code, until the texts are forgotten; false: there is none. */
bool pj_packed_texts_find(pj_packed_texts *texts, const char *code, size_t bytes, pj_value *text);

#endif

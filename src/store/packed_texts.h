/* Texts that packed rows repeat (packing.h): names of components and operations, methods, the JSON
 * of extra figures without its numbers. Table packed_texts has each of them once; rows have its
 * code, a blob of one or two bytes. Texts are never deleted; what exceeds a limit has no code. */
#ifndef PJ_STORE_PACKED_TEXTS_H
#define PJ_STORE_PACKED_TEXTS_H

#include "base/memory.h"
#include "store/sql.h"

enum {
    PJ_PACKED_CODE_BYTES = 2,
    PJ_PACKED_TEXT_BYTES = 4096, /* of a text, at most */
    PJ_PACKED_TEXTS = 4096,
    PJ_PACKED_FORMS = PJ_PACKED_TEXTS * 3 / 4, /* from then on, only names get new codes */
    PJ_PACKED_SLOTS = 2 * PJ_PACKED_TEXTS
};

/* What a store knows of the table. */
typedef struct pj_packed_texts {
    pj_store *store;
    pj_arena arena;
    pj_value *texts; /* by number; NULL: there is none, or it is damaged */
    uint32_t count;
    uint16_t slots[PJ_PACKED_SLOTS]; /* hash table: number of a text + 1 */
    bool is_read;
    pj_error failure; /* the first one of pj_packed_texts_code */
} pj_packed_texts;

/* Forgets what was read, and a failure: before a run is saved, since another process may have
 * added texts, and after a transaction that failed. */
void pj_packed_texts_forget(pj_packed_texts *texts);
/* Writes the code of a text, valid UTF-8 or not, and returns its length; 0: it has none, or there
 * was a failure. A new text is stored while there are fewer than `most`, so this belongs in a
 * transaction that writes. */
size_t pj_packed_texts_code(pj_packed_texts *texts, const pj_value *text, uint32_t most,
                            char code[PJ_PACKED_CODE_BYTES]);
/* Gives the text of a code, until the texts are forgotten. */
pj_status pj_packed_texts_find(pj_packed_texts *texts, const char *code, size_t bytes,
                               pj_value *text, pj_error *err);
/* The database has a code that stands for nothing, or a value that is not what its code says. */
pj_status pj_packed_texts_fail(const pj_packed_texts *texts, pj_error *err);

#endif

#include "net/message.h"

#include "base/decimal.h"
#include "base/memory.h"

#include <string.h>

uint64_t pj_run_key(const char *run_id)
{
    if (!run_id || !run_id[0]) return 0;
    uint64_t key = pj_hash64(0, run_id, strlen(run_id));
    return key ? key : 1;
}

/* `{"seq":N,`, which replaces the object's opening brace; returns its length. */
static size_t sequence_member(char text[32], uint64_t sequence)
{
    memcpy(text, "{\"seq\":", 7);
    size_t n = 7 + pj_decimal_uint(sequence, text + 7);
    text[n++] = ',';
    return n;
}

pj_message *pj_message_new(const pj_publication *p, uint64_t sequence)
{
    char member[PJ_DECIMAL_BYTES];
    unsigned char head[PJ_FRAME_HEAD_MAX];
    size_t member_bytes = p->binary ? 0 : sequence_member(member, sequence);
    size_t skip = p->binary ? 0 : 1; /* the brace */
    size_t payload = member_bytes + p->count - skip;
    size_t head_bytes = pj_frame_head(head, p->binary, payload);
    pj_message *m = pj_alloc(1, sizeof *m + head_bytes + payload);
    if (!m) return NULL;
    atomic_init(&m->references, 1);
    m->head_bytes = (uint32_t)head_bytes;
    m->count = 1;
    m->bytes = head_bytes + payload;
    m->sequence = sequence;
    m->run_key = pj_run_key(p->run_id);
    m->audience = (uint8_t)p->audience;
    m->state = p->state;
    m->begins_run = p->begins_run;
    m->ends_run = p->ends_run;
    m->binary = p->binary;
    memcpy(m->frame, head, head_bytes);
    memcpy(m->frame + head_bytes, member, member_bytes);
    memcpy(m->frame + head_bytes + member_bytes, (const char *)p->bytes + skip, p->count - skip);
    if (p->binary && p->count >= 8)
        for (int i = 0; i < 4; i++)
            m->frame[head_bytes + 4 + (size_t)i] = (unsigned char)(sequence >> 8 * i);
    return m;
}

pj_message *pj_message_ref(pj_message *message)
{
    atomic_fetch_add_explicit(&message->references, 1, memory_order_relaxed);
    return message;
}

void pj_message_unref(pj_message *message)
{
    if (message && atomic_fetch_sub_explicit(&message->references, 1, memory_order_acq_rel) == 1)
        pj_free(message);
}

#include "net/reader.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "http/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_NS = 250 * 1000 * 1000,
    LOOK_NS = 50 * 1000 * 1000, /* how often sockets are polled while messages flow */
    REST_RATIO = 9,             /* ratio of idle time to the duration of a delivery */
    BLOCK_MAX_BYTES = 256 << 10,
    GOODBYE_NS = 1000 * 1000 * 1000,
    USER_TIMEOUT_MS = 30000
};

struct pj_hub {
    pj_hub_options options;
    pthread_t thread;
    int wake[2]; /* self-pipe: wakes the hub's thread */
    char instance[PJ_UUID_BYTES];

    pthread_mutex_t mutex; /* guards the next five members, and changes of the ring */
    pj_message *inbox, **inbox_end;
    size_t inbox_bytes;
    uint64_t next_number;
    pj_reader **incoming;
    uint32_t incoming_count;

    pj_message_ring ring;
    uint64_t run_begin;   /* sequence number at which the current run begins; 0: no run */
    pj_reader **readers;  /* only for the hub's thread */
    struct pollfd *polls; /* [0] is the pipe; [k + 1] belongs to readers[asked[k]] */
    uint32_t *asked;      /* ascending */
    uint32_t count;
    int64_t delivered_ns, rest_ns; /* end of the last delivery, pause after it */
    int64_t looked_ns;             /* when all sockets were last polled */

    _Atomic bool woken, closing;
    _Atomic uint32_t total; /* incoming and served */
    _Atomic uint32_t json_readers, binary_readers;
    _Atomic uint64_t sent, skipped, dropped, published;
    _Atomic int64_t cpu_ns;
    _Atomic size_t ring_bytes;
};

/* ---- waking -------------------------------------------------------------------------------- */

static void wake(pj_hub *hub)
{
    if (atomic_exchange(&hub->woken, true)) return;
    ssize_t n;
    do n = write(hub->wake[1], "w", 1);
    while (n < 0 && errno == EINTR);
}

static void take_wake(pj_hub *hub)
{
    char bytes[64];
    while (read(hub->wake[0], bytes, sizeof bytes) > 0) continue;
    atomic_store(&hub->woken, false);
}

/* ---- publishing ---------------------------------------------------------------------------- */

void pj_hub_publish(pj_hub *hub, const pj_publication *publication)
{
    pthread_mutex_lock(&hub->mutex);
    uint64_t number = hub->next_number++;
    /* The hub's thread never waits, so this limit is reached only when it gets no CPU time. */
    bool room = hub->inbox_bytes < hub->options.bytes_max ||
                (!publication->state && hub->inbox_bytes < 2 * hub->options.bytes_max);
    pj_message *message = room ? pj_message_new(publication, number) : NULL;
    if (message) {
        *hub->inbox_end = message;
        hub->inbox_end = &message->next;
        hub->inbox_bytes += message->bytes;
    }
    pthread_mutex_unlock(&hub->mutex);
    atomic_fetch_add_explicit(&hub->published, 1, memory_order_relaxed);
    wake(hub);
}

uint32_t pj_hub_readers(const pj_hub *hub, bool binary)
{
    return atomic_load_explicit(binary ? &hub->binary_readers : &hub->json_readers,
                                memory_order_relaxed);
}

static void hub_note_run(pj_hub *hub, const pj_message *message)
{
    if (message->begins_run) hub->run_begin = message->sequence;
    if (message->ends_run) hub->run_begin = 0;
}

static void take_inbox(pj_hub *hub)
{
    pthread_mutex_lock(&hub->mutex);
    pj_message *message = hub->inbox;
    hub->inbox = NULL;
    hub->inbox_end = &hub->inbox;
    hub->inbox_bytes = 0;
    while (message) {
        pj_message *next = message->next;
        hub_note_run(hub, message);
        pj_message_ring_put(&hub->ring, message);
        message = next;
    }
    pthread_mutex_unlock(&hub->mutex);
    atomic_store_explicit(&hub->ring_bytes, hub->ring.bytes, memory_order_relaxed);
}

void pj_hub_write_messages(pj_hub *hub, const char *run_id, uint64_t from, pj_buffer *out)
{
    uint64_t key = pj_run_key(run_id);
    bool any = false;
    pj_buffer_char(out, '[');
    pthread_mutex_lock(&hub->mutex);
    for (uint64_t n = hub->ring.tail; n < hub->ring.head; n++) {
        const pj_ring_slot *slot = pj_message_ring_at(&hub->ring, n);
        const pj_message *m = slot->message;
        if (n < from || !m || m->binary || m->run_key != key) continue;
        if (any) pj_buffer_char(out, ',');
        pj_buffer_append(out, m->frame + m->head_bytes, m->bytes - m->head_bytes);
        any = true;
    }
    pthread_mutex_unlock(&hub->mutex);
    pj_buffer_char(out, ']');
}

/* ---- readers ------------------------------------------------------------------------------- */

bool pj_hub_has_room(const pj_hub *hub)
{
    return !atomic_load(&hub->closing) && atomic_load(&hub->total) < hub->options.readers_max;
}

static void tune_socket(const pj_hub *hub, int fd)
{
    int yes = 1, bytes = hub->options.send_buffer_bytes;
    pj_fd_prepare(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* Otherwise the kernel buffers megabytes of backlog per reader. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
#ifdef TCP_USER_TIMEOUT
    /* Unacknowledged data or pings for so long: the peer is gone. */
    unsigned timeout = USER_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
#endif
}

bool pj_hub_add(pj_hub *hub, int fd, const pj_reader_options *options, const void *bytes,
                size_t count)
{
    bool added = false;
    tune_socket(hub, fd);
    pj_reader *reader = pj_reader_new(fd, options, bytes, count);
    if (!reader) {
        close(fd);
        return false;
    }
    reader->cursor = options->resume ? options->from : 0;
    pthread_mutex_lock(&hub->mutex);
    if (pj_hub_has_room(hub)) {
        pj_reader **grown =
            pj_resize(hub->incoming, hub->incoming_count + 1, sizeof *hub->incoming);
        if (grown) {
            hub->incoming = grown;
            hub->incoming[hub->incoming_count++] = reader;
            atomic_fetch_add(&hub->total, 1);
            added = true;
        }
    }
    pthread_mutex_unlock(&hub->mutex);
    if (added)
        wake(hub);
    else
        pj_reader_free(reader, false);
    return added;
}

static _Atomic uint32_t *counter_of(pj_hub *hub, const pj_reader *reader)
{
    return reader->audience == PJ_FOR_BINARY ? &hub->binary_readers : &hub->json_readers;
}

static void greet(pj_hub *hub, pj_reader *reader)
{
    pj_buffer text;
    pj_buffer_init(&text, 4 << 20);
    pj_buffer_printf(&text,
                     "{\"type\":\"hello\",\"run_id\":null,\"t_ms\":null,\"version\":\"%s\","
                     "\"instance\":\"%s\",",
                     pj_version(), hub->instance);
    if (hub->options.hello)
        hub->options.hello(hub->options.context, &text);
    else
        pj_buffer_text(&text, "\"running\":null,\"queue\":0");
    pj_buffer_char(&text, '}');
    pj_publication publication = {.bytes = text.data, .count = text.length, .audience = PJ_FOR_ALL};
    pj_message *hello = text.failed ? NULL : pj_message_new(&publication, reader->cursor - 1);
    if (hello) pj_reader_greet(reader, hello);
    pj_buffer_fini(&text);
}

/* Where a new reader starts: where it left off, at the begin of the current run, or now. */
static void hub_set_cursor(pj_hub *hub, pj_reader *reader)
{
    bool resumes = reader->cursor > 0 && reader->cursor <= hub->ring.head;
    if (resumes) return;
    reader->cursor = hub->run_begin ? hub->run_begin : hub->ring.head;
    if (reader->cursor < hub->ring.tail) reader->cursor = hub->ring.tail;
}

static bool hub_make_room(pj_hub *hub)
{
    if (hub->count % 64 != 0) return true;
    pj_reader **readers = pj_resize(hub->readers, hub->count + 64, sizeof *readers);
    if (readers) hub->readers = readers;
    struct pollfd *polls = pj_resize(hub->polls, hub->count + 65, sizeof *polls);
    if (polls) hub->polls = polls;
    uint32_t *asked = pj_resize(hub->asked, hub->count + 64, sizeof *asked);
    if (asked) hub->asked = asked;
    return readers && polls && asked;
}

static void hub_admit(pj_hub *hub, pj_reader *reader, int64_t now)
{
    if (!hub_make_room(hub)) {
        pj_reader_free(reader, false);
        atomic_fetch_sub(&hub->total, 1);
        return;
    }
    hub_set_cursor(hub, reader);
    greet(hub, reader);
    reader->progress_ns = now;
    reader->ping_ns = now;
    hub->readers[hub->count++] = reader;
    atomic_fetch_add(counter_of(hub, reader), 1);
}

static void take_incoming(pj_hub *hub, int64_t now)
{
    pthread_mutex_lock(&hub->mutex);
    pj_reader **incoming = hub->incoming;
    uint32_t count = hub->incoming_count;
    hub->incoming = NULL;
    hub->incoming_count = 0;
    pthread_mutex_unlock(&hub->mutex);
    for (uint32_t i = 0; i < count; i++) hub_admit(hub, incoming[i], now);
    pj_free(incoming);
}

static void count_traffic(pj_hub *hub, pj_reader *reader)
{
    atomic_fetch_add_explicit(&hub->sent, reader->sent, memory_order_relaxed);
    atomic_fetch_add_explicit(&hub->skipped, reader->skipped, memory_order_relaxed);
    reader->sent = reader->skipped = 0;
}

static void remove_reader(pj_hub *hub, uint32_t i, bool reset)
{
    pj_reader *reader = hub->readers[i];
    count_traffic(hub, reader);
    atomic_fetch_sub(counter_of(hub, reader), 1);
    atomic_fetch_sub(&hub->total, 1);
    if (reset) atomic_fetch_add(&hub->dropped, 1);
    pj_reader_free(reader, reset);
    hub->readers[i] = hub->readers[--hub->count];
}

/* ---- the loop ------------------------------------------------------------------------------ */

static pj_reader_news no_news(const pj_hub *hub)
{
    return (pj_reader_news){.ring = &hub->ring, .from = hub->ring.head};
}

static pj_reader_news gather_news(pj_hub *hub, uint64_t from)
{
    pj_reader_news news = {&hub->ring, from, {NULL, NULL}};
    if (pj_hub_readers(hub, false))
        news.blocks[0] = pj_message_ring_join(&hub->ring, from, PJ_FOR_JSON, BLOCK_MAX_BYTES);
    if (pj_hub_readers(hub, true))
        news.blocks[1] = pj_message_ring_join(&hub->ring, from, PJ_FOR_BINARY, BLOCK_MAX_BYTES);
    return news;
}

/* Readers with a full socket wait for poll. Backwards, because a removal moves the last reader into
 * the gap. */
static void deliver_to_all(pj_hub *hub, const pj_reader_news *news, int64_t now)
{
    for (uint32_t i = hub->count; i-- > 0;) {
        pj_reader *reader = hub->readers[i];
        if (reader->blocked) continue;
        if (!pj_reader_send(reader, news, now))
            remove_reader(hub, i, false);
        else
            count_traffic(hub, reader);
    }
}

static void hub_deliver(pj_hub *hub, int64_t now)
{
    int64_t cpu_ns = pj_clock_thread_cpu_ns();
    uint64_t from = hub->ring.head;
    take_inbox(hub); /* first: a new reader starts after messages published before it came */
    take_incoming(hub, now);
    pj_reader_news news = gather_news(hub, from);
    deliver_to_all(hub, &news, now);
    pj_message_unref(news.blocks[0]);
    pj_message_unref(news.blocks[1]);
    hub->delivered_ns = pj_clock_ns();
    hub->rest_ns = REST_RATIO * (pj_clock_thread_cpu_ns() - cpu_ns);
    if (hub->rest_ns > PJ_HUB_COALESCE_MAX_MS * PJ_NS_PER_MS)
        hub->rest_ns = PJ_HUB_COALESCE_MAX_MS * PJ_NS_PER_MS;
    if (hub->rest_ns < hub->options.coalesce_ns) hub->rest_ns = hub->options.coalesce_ns;
}

static void serve_sockets(pj_hub *hub, uint32_t polled, int64_t now)
{
    pj_reader_news news = no_news(hub);
    for (uint32_t k = polled; k-- > 0;) {
        short events = hub->polls[k + 1].revents;
        uint32_t i = hub->asked[k];
        if (!events) continue;
        pj_reader *reader = hub->readers[i];
        bool lives = true;
        if (events & (POLLIN | POLLHUP | POLLERR)) lives = pj_reader_receive(reader);
        if (lives) lives = pj_reader_send(reader, &news, now);
        if (!lives) remove_reader(hub, i, false);
    }
}

static void hub_tick(pj_hub *hub, int64_t now)
{
    pj_reader_news news = no_news(hub);
    for (uint32_t i = hub->count; i-- > 0;) {
        pj_reader *reader = hub->readers[i];
        if (reader->blocked && now - reader->progress_ns > hub->options.stall_ns) {
            remove_reader(hub, i, true);
            continue;
        }
        if (now - reader->ping_ns < hub->options.ping_ns) continue;
        pj_reader_ping(reader, now);
        if (!reader->blocked && !pj_reader_send(reader, &news, now)) remove_reader(hub, i, false);
    }
    atomic_store(&hub->cpu_ns, pj_clock_thread_cpu_ns());
}

/* Lists the readers that wait to be sent more, or all; returns their number. */
static uint32_t prepare_polls(pj_hub *hub, bool all)
{
    uint32_t polled = 0;
    hub->polls[0] = (struct pollfd){.fd = hub->wake[0], .events = POLLIN};
    for (uint32_t i = 0; i < hub->count; i++) {
        const pj_reader *reader = hub->readers[i];
        short events = 0;
        if (reader->blocked || reader->control_sent < reader->control_used) events |= POLLOUT;
        if (!all && !events) continue;
        if (pj_reader_listens(reader)) events |= POLLIN;
        hub->asked[polled++] = i;
        hub->polls[polled] = (struct pollfd){.fd = reader->fd, .events = events};
    }
    return polled;
}

static int wait_ms(int64_t until_ns, int64_t now)
{
    return until_ns <= now ? 0 : (int)((until_ns - now + PJ_NS_PER_MS - 1) / PJ_NS_PER_MS);
}

/* Waits until `until_ns` for new messages or sockets; true: there are messages. Polling a thousand
 * sockets costs as much as sending to some of them, so while messages flow, readers that keep up
 * are polled only now and then. */
static bool wait_for_news(pj_hub *hub, int64_t until_ns, int64_t now)
{
    int64_t sample_ns = hub->looked_ns + LOOK_NS;
    bool flows = now < hub->delivered_ns + LOOK_NS && !atomic_load(&hub->closing);
    bool all = !flows || now >= sample_ns;
    if (!all && sample_ns < until_ns) until_ns = sample_ns;
    uint32_t polled = prepare_polls(hub, all);
    int ready = poll(hub->polls, polled + 1, wait_ms(until_ns, now));
    if (all) hub->looked_ns = pj_clock_ns();
    if (ready > 0) serve_sockets(hub, polled, pj_clock_ns());
    return ready > 0 && hub->polls[0].revents;
}

static void hub_send_close(pj_hub *hub, int64_t now)
{
    pj_reader_news news = no_news(hub);
    hub_deliver(hub, now);
    for (uint32_t i = hub->count; i-- > 0;) {
        pj_reader_say_goodbye(hub->readers[i], 1001);
        if (!pj_reader_send(hub->readers[i], &news, now)) remove_reader(hub, i, false);
    }
}

static void *run_hub(void *context)
{
    pj_hub *hub = context;
    int64_t now = pj_clock_ns(), tick_ns = now + TICK_NS, goodbye_ns = 0;
    while (!goodbye_ns || (hub->count > 0 && now < goodbye_ns)) {
        if (wait_for_news(hub, tick_ns, now)) {
            pj_clock_sleep_until(hub->delivered_ns + hub->rest_ns);
            take_wake(hub);
            hub_deliver(hub, pj_clock_ns());
        }
        now = pj_clock_ns();
        if (now >= tick_ns) {
            hub_tick(hub, now);
            tick_ns = now + TICK_NS;
        }
        if (atomic_load(&hub->closing) && !goodbye_ns) {
            hub_send_close(hub, now);
            goodbye_ns = now + GOODBYE_NS;
        }
    }
    while (hub->count > 0) remove_reader(hub, hub->count - 1, true);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

static uint32_t readers_allowed(uint32_t wanted)
{
    struct rlimit files;
    uint32_t most = PJ_HUB_READERS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        uint64_t others = 256; /* connections of requests, databases, models */
        uint64_t room = files.rlim_cur > 2 * others ? files.rlim_cur - others : files.rlim_cur / 2;
        if (room < most) most = (uint32_t)room;
    }
    return wanted && wanted < most ? wanted : most;
}

static void set_defaults(pj_hub_options *o)
{
    o->readers_max = readers_allowed(o->readers_max);
    if (o->messages_max == 0) o->messages_max = 65536;
    if (o->bytes_max == 0) o->bytes_max = 32 << 20;
    if (o->coalesce_ns == 0) o->coalesce_ns = 33 * PJ_NS_PER_MS;
    if (o->ping_ns == 0) o->ping_ns = 20 * PJ_NS_PER_S;
    if (o->stall_ns == 0) o->stall_ns = PJ_HUB_STALL_S * PJ_NS_PER_S;
    if (o->send_buffer_bytes == 0) o->send_buffer_bytes = 128 << 10;
}

static pj_status open_pipe(pj_hub *hub, pj_error *err)
{
    if (pipe(hub->wake) != 0) return pj_fail_errno(err, errno, "cannot create a pipe");
    for (int i = 0; i < 2; i++) pj_fd_prepare(hub->wake[i]);
    return PJ_OK;
}

static void free_hub(pj_hub *hub)
{
    for (int i = 0; i < 2; i++)
        if (hub->wake[i] >= 0) close(hub->wake[i]);
    for (uint32_t i = 0; i < hub->incoming_count; i++) pj_reader_free(hub->incoming[i], false);
    for (pj_message *m = hub->inbox; m;) {
        pj_message *next = m->next;
        pj_message_unref(m);
        m = next;
    }
    pj_message_ring_fini(&hub->ring);
    pthread_mutex_destroy(&hub->mutex);
    pj_free(hub->incoming);
    pj_free(hub->readers);
    pj_free(hub->polls);
    pj_free(hub->asked);
    pj_free(hub);
}

pj_status pj_hub_open(const pj_hub_options *options, pj_hub **out, pj_error *err)
{
    *out = NULL;
    pj_hub *hub = pj_alloc(1, sizeof *hub);
    if (!hub) return pj_fail_memory(err, "the live stream");
    hub->options = *options;
    set_defaults(&hub->options);
    hub->wake[0] = hub->wake[1] = -1;
    hub->inbox_end = &hub->inbox;
    hub->next_number = 1;
    pj_uuid7(hub->instance);
    pthread_mutex_init(&hub->mutex, NULL);
    pj_status status =
        pj_message_ring_init(&hub->ring, hub->options.messages_max, hub->options.bytes_max, err);
    if (status == PJ_OK && !hub_make_room(hub)) status = pj_fail_memory(err, "the live stream");
    if (status == PJ_OK) status = open_pipe(hub, err);
    if (status == PJ_OK) status = pj_thread_start(&hub->thread, "pj-hub", run_hub, hub, err);
    if (status != PJ_OK) {
        free_hub(hub);
        return status;
    }
    *out = hub;
    return PJ_OK;
}

void pj_hub_close(pj_hub *hub)
{
    if (!hub) return;
    atomic_store(&hub->closing, true);
    wake(hub);
    pthread_join(hub->thread, NULL);
    free_hub(hub);
}

void pj_hub_get_stats(const pj_hub *hub, pj_hub_stats *stats)
{
    *stats = (pj_hub_stats){.readers = atomic_load(&hub->total),
                            .published = atomic_load(&hub->published),
                            .sent = atomic_load(&hub->sent),
                            .skipped = atomic_load(&hub->skipped),
                            .dropped = atomic_load(&hub->dropped),
                            .ring_bytes = atomic_load(&hub->ring_bytes),
                            .cpu_ns = atomic_load(&hub->cpu_ns)};
}

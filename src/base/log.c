#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log_format.h"
#include "base/log_marks.h"

enum {
    RING_BYTES = 1 << 20,
    RING_LEAST = 4096,
    LINE_BYTES = 768,        /* reserved for a line before it is written: most need no second allocation */
    LINE_KEPT_BYTES = 16384, /* a buffer up to this stays for the next line */
    FILE_PIECE_BYTES = 65536,
    LINGER_MS = 10, /* how long lines gather after a write before the next one: a burst costs few wake-ups */
    GOODBYE_MS = 1000, /* for slow readers, at the end */
    SAMPLE_MS = 1000
};
#define NO_WAKE UINT64_MAX

/* The way to one descriptor. Producers move `tail`, the writer moves `head`, both under the lock; bytes
 * between them belong to the writer. */
struct stream {
    int fd;
    size_t piece; /* bytes written at a time */
    char *ring;
    uint64_t head, tail;
    uint64_t wake_at; /* the writer wants the bell when this many bytes wait; NO_WAKE: it looks by itself */
    uint64_t untold; /* lines that did not fit. Until they are told nothing is taken, so that one notice tells
                        all */
};

/* Fields of every event. Replaced ones are kept until the end: another thread may be formatting with them. */
struct common {
    struct common *older;
    struct pl_arena text;
    size_t count;
    struct pl_field fields[];
};

struct pl_logger {
    struct pl_log_options options;
    _Atomic int min;
    _Atomic(struct common *) common;
    _Atomic uint64_t dropped;
    pthread_mutex_t lock; /* the rings and `stop_ms`; never held across a system call that may wait */
    struct stream streams[2];
    struct stream *own, *raw;  /* one and the same when both descriptors are one file: lines must not mix */
    struct pl_log_marks marks; /* of `raw` */
    uint64_t size;             /* of a ring */
    uint64_t stop_ms; /* the writer leaves when all is written, at the latest then; 0: not asked to */
    int bell, left;   /* eventfds: there is something to do; the writer has left */
    pthread_t thread;
    struct pl_buf
        line; /* to format in, for whom has `line_lent`; whoever comes meanwhile takes one of its own */
    _Atomic bool line_lent;
};

static uint64_t monotonic_ms(void) { return pl_now_us() / 1000; }
static uint64_t waiting(const struct stream *s) { return s->tail - s->head; }

static uint64_t count_lines(const char *bytes, size_t n) {
    uint64_t lines = 0;
    for (const char *end = bytes + n; (bytes = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL; bytes++)
        lines++;
    return lines;
}

/* Two pieces at most: the ring may wrap. */
static int ring_pieces(const struct pl_logger *l, const struct stream *s, uint64_t at, size_t n,
                       struct iovec out[2]) {
    size_t from = (size_t)(at & (l->size - 1)), first = (size_t)l->size - from;
    if (first > n) first = n;
    out[0] = (struct iovec){ s->ring + from, first };
    out[1] = (struct iovec){ s->ring, n - first };
    return n > first ? 2 : 1;
}

/* Locked; there is room. True: the bell must be rung, after the lock is given back. */
static bool append(const struct pl_logger *l, struct stream *s, const char *bytes, size_t n) {
    struct iovec to[2];
    uint64_t before = waiting(s);
    int pieces = ring_pieces(l, s, s->tail, n, to);
    memcpy(to[0].iov_base, bytes, to[0].iov_len);
    if (pieces == 2) memcpy(to[1].iov_base, bytes + to[0].iov_len, to[1].iov_len);
    s->tail += n;
    bool wake = before < s->wake_at && waiting(s) >= s->wake_at;
    if (wake) s->wake_at = NO_WAKE;
    return wake;
}

static void ring(int bell) {
    /* cannot fail but by a counter at its limit, and then whoever waits is woken already */
    if (eventfd_write(bell, 1) == -1) return;
}

static void put_own(struct pl_logger *l, const char *bytes, size_t n) {
    bool bell = false;
    pthread_mutex_lock(&l->lock);
    if (l->own->untold == 0 && n <= l->size - waiting(l->own)) {
        bell = append(l, l->own, bytes, n);
    } else {
        uint64_t lines = count_lines(bytes, n);
        l->own->untold += lines;
        atomic_fetch_add(&l->dropped, lines);
        bell = l->own->wake_at !=
               NO_WAKE; /* there may be room already: the notice must not wait for the next line */
        l->own->wake_at = NO_WAKE;
    }
    pthread_mutex_unlock(&l->lock);
    if (bell) ring(l->bell);
}

bool pl_log_raw(struct pl_logger *l, const char *bytes, size_t count) {
    bool bell = false;
    pthread_mutex_lock(&l->lock);
    bool fits = l->raw->untold == 0 && waiting(l->raw) + count <= l->size / 4 * 3;
    if (fits && count > 0) bell = append(l, l->raw, bytes, count);
    pthread_mutex_unlock(&l->lock);
    if (bell) ring(l->bell);
    return fits;
}

void pl_log_raw_mark(struct pl_logger *l, _Atomic uint64_t *to, uint64_t value) {
    pthread_mutex_lock(&l->lock);
    pl_log_marks_add(&l->marks, l->raw->tail, to, value);
    pl_log_marks_reach(&l->marks, l->raw->head); /* nothing may wait: then nobody would come by */
    pthread_mutex_unlock(&l->lock);
}

void pl_log_raw_forget(struct pl_logger *l, const _Atomic uint64_t *to) {
    pthread_mutex_lock(&l->lock);
    pl_log_marks_forget(&l->marks, to);
    pthread_mutex_unlock(&l->lock);
}

void pl_log_text(struct pl_logger *l, const char *text) { put_own(l, text, strlen(text)); }

/* The writer, locked: when half the ring is free again, one line says what is missing at this place. */
static void tell_dropped(struct pl_logger *l) {
    struct stream *s = l->own;
    if (s->untold == 0 || waiting(s) > l->size / 2) return;
    if (pl_log_wants(l, PL_WARN)) {
        struct pl_buf line;
        pl_buf_init(&line, 1024);
        pl_log_format_line(&line, l->options.format, l->options.color, PL_WARN, "log.dropped",
                           pl_wall_ms(l->options.clock), &F_INT("lines", s->untold), 1);
        append(l, s, line.data, line.len);
        pl_buf_free(&line);
    }
    s->untold = 0;
}

/* After POLLOUT a pipe takes PIPE_BUF bytes without waiting, and in one piece; a file takes what it is given.
 */
static size_t piece_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? FILE_PIECE_BYTES : PIPE_BUF;
}

/* The writer, locked. A piece ends with a line's end where it can, so that what others write to the same pipe
 * comes between lines. */
static size_t next_piece(const struct pl_logger *l, const struct stream *s) {
    size_t n = waiting(s) < s->piece ? (size_t)waiting(s) : s->piece, whole = n;
    while (whole > 0 && s->ring[(s->head + whole - 1) & (l->size - 1)] != '\n') whole--;
    if (whole > 0) n = whole;
    return n;
}

/* The writer, locked at entry and exit. False: the descriptor would not take anything. */
static bool write_some(struct pl_logger *l, struct stream *s) {
    struct iovec piece[2];
    size_t n = next_piece(l, s);
    int pieces = ring_pieces(l, s, s->head, n, piece), old;
    pthread_mutex_unlock(&l->lock);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    ssize_t done = writev(s->fd, piece, pieces);
    int why = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_mutex_lock(&l->lock);
    if (done == -1 && (why == EINTR || why == EAGAIN)) return false;
    if (done == -1) {
        /* Nobody reads any more, or the disk is full: these lines are lost, later ones may not be. There is
         * no notice: it would go the same way. */
        for (int i = 0; i < pieces; i++)
            atomic_fetch_add(&l->dropped, count_lines(piece[i].iov_base, piece[i].iov_len));
    }
    s->head += done == -1 ? n : (size_t)done;
    if (s == l->raw) pl_log_marks_reach(&l->marks, s->head);
    return true;
}

static bool stream_in_use(const struct pl_logger *l, size_t i) { return i == 0 || l->raw != l->own; }

/* Locked. What the writer waits for: the bell, and those descriptors for which something is there. */
static bool plan_wait(struct pl_logger *l, struct pollfd fds[3], uint64_t wake_at) {
    bool pending = false;
    fds[2] = (struct pollfd){ .fd = l->bell, .events = POLLIN };
    for (size_t i = 0; i < 2; i++) {
        struct stream *s = &l->streams[i];
        bool here = stream_in_use(l, i) && waiting(s) > 0;
        fds[i] = (struct pollfd){ .fd = here ? s->fd : -1, .events = POLLOUT };
        s->wake_at = here ? NO_WAKE : wake_at;
        pending |= here;
    }
    return pending;
}

static int wait_ms(const struct pl_logger *l, bool pending, bool lingering) {
    if (l->stop_ms != 0) {
        uint64_t now = monotonic_ms();
        return now < l->stop_ms ? (int)(l->stop_ms - now) : 0;
    }
    return !pending && lingering ? (int)LINGER_MS : -1;
}

static void *writer(void *arg) {
    struct pl_logger *l = arg;
    bool lingering = false;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        struct pollfd fds[3];
        eventfd_t rings;
        tell_dropped(l);
        bool pending = plan_wait(l, fds, lingering ? l->size / 2 : 1);
        if (l->stop_ms != 0 && (!pending || monotonic_ms() >= l->stop_ms)) break;
        int timeout = wait_ms(l, pending, lingering);
        pthread_mutex_unlock(&l->lock);
        int ready = poll(fds, 3, timeout);
        if (fds[2].revents != 0 && eventfd_read(l->bell, &rings) == -1) rings = 0;
        pthread_mutex_lock(&l->lock);
        if (ready == 0) lingering = false;
        for (size_t i = 0; ready > 0 && i < 2; i++)
            if (fds[i].fd != -1 && fds[i].revents != 0 && write_some(l, &l->streams[i])) lingering = true;
    }
    pthread_mutex_unlock(&l->lock);
    ring(l->left);
    return NULL;
}

static bool same_file(int a, int b) {
    struct stat x, y;
    if (a == b) return true;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool start_writer(struct pl_logger *l) {
    /* signals are the main thread's business; SIGPIPE of a closed reader must not end us */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&l->thread, NULL, writer, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0;
}

static void release(struct pl_logger *l) {
    for (struct common *c = atomic_load(&l->common), *older; c != NULL; c = older) {
        older = c->older;
        pl_arena_free(&c->text);
        free(c);
    }
    if (l->bell != -1) close(l->bell);
    if (l->left != -1) close(l->left);
    pthread_mutex_destroy(&l->lock);
    pl_buf_free(&l->line);
    free(l->streams[0].ring);
    free(l->streams[1].ring);
    free(l);
}

struct pl_logger *pl_log_create(const struct pl_log_options *options) {
    struct pl_logger *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    l->options = *options;
    l->size = options->ring_bytes == 0 ? (uint64_t)RING_BYTES : RING_LEAST;
    while (l->size < options->ring_bytes) l->size *= 2;
    atomic_init(&l->min, (int)options->min);
    atomic_init(&l->common, NULL);
    atomic_init(&l->dropped, 0);
    atomic_init(&l->line_lent, false);
    pl_buf_init(&l->line, 0);
    pthread_mutex_init(&l->lock, NULL);
    bool one = same_file(options->out_fd, options->raw_fd);
    l->own = &l->streams[0];
    l->raw = &l->streams[one ? 0 : 1];
    l->streams[0] = (struct stream){ .fd = options->out_fd,
                                     .piece = piece_of(options->out_fd),
                                     .ring = malloc((size_t)l->size),
                                     .wake_at = NO_WAKE };
    l->streams[1] =
        (struct stream){ .fd = options->raw_fd, .piece = piece_of(options->raw_fd), .wake_at = NO_WAKE };
    if (!one) l->streams[1].ring = malloc((size_t)l->size);
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->left = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->own->ring == NULL || l->raw->ring == NULL || l->bell == -1 || l->left == -1 || !start_writer(l)) {
        release(l);
        return NULL;
    }
    return l;
}

void pl_log_destroy(struct pl_logger *l) {
    if (l == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop_ms = monotonic_ms() + GOODBYE_MS;
    pthread_mutex_unlock(&l->lock);
    ring(l->bell);
    /* a terminal that is held with ^S can keep the thread inside write() for ever */
    struct pollfd left = { .fd = l->left, .events = POLLIN };
    if (poll(&left, 1, GOODBYE_MS + 100) != 1) pthread_cancel(l->thread);
    pthread_join(l->thread, NULL);
    release(l);
}

void pl_log_set_level(struct pl_logger *l, enum pl_level min) { atomic_store(&l->min, (int)min); }

bool pl_log_wants(const struct pl_logger *l, enum pl_level level) {
    return (int)level >= atomic_load_explicit(&l->min, memory_order_relaxed);
}

const struct pl_log_options *pl_log_options_of(const struct pl_logger *l) { return &l->options; }
uint64_t pl_log_dropped(const struct pl_logger *l) { return atomic_load(&l->dropped); }

void pl_log_set_common(struct pl_logger *l, const struct pl_field *fields, size_t count) {
    struct common *c = calloc(1, sizeof *c + count * sizeof *fields);
    if (c == NULL) return;
    pl_arena_init(&c->text, 0);
    for (size_t i = 0; i < count; i++) {
        struct pl_field f = fields[i];
        f.key = pl_arena_strndup(&c->text, f.key, strlen(f.key));
        if (f.kind == PL_F_STR && f.u.s != NULL) f.u.s = pl_arena_strndup(&c->text, f.u.s, strlen(f.u.s));
        if (f.kind == PL_F_TEXT && f.u.s != NULL) f.u.s = pl_arena_strndup(&c->text, f.u.s, f.len);
        if (f.key != NULL) c->fields[c->count++] = f;
    }
    c->older = atomic_load(&l->common);
    atomic_store(&l->common, c);
}

static bool has_key(const struct pl_field *fields, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].key, key) == 0) return true;
    return false;
}

static void format_event(const struct pl_logger *l, struct pl_buf *out, enum pl_log_format format,
                         enum pl_level level, const char *event, uint64_t wall_ms,
                         const struct pl_field *fields, size_t count) {
    const struct common *c = atomic_load(&l->common);
    pl_buf_reserve(out, LINE_BYTES);
    pl_log_line_begin(out, format, l->options.color, level, event, wall_ms);
    for (size_t i = 0; i < count; i++) pl_log_line_field(out, format, &fields[i]);
    for (size_t i = 0; c != NULL && i < c->count; i++)
        if (!has_key(fields, count, c->fields[i].key)) pl_log_line_field(out, format, &c->fields[i]);
    pl_log_line_end(out, format);
}

/* The buffer of the last line, so that an access line allocates nothing; `own` when another thread, or an
 * event that the tap causes, has it. */
static struct pl_buf *borrow_line(struct pl_logger *l, struct pl_buf *own) {
    if (atomic_exchange(&l->line_lent, true)) {
        pl_buf_init(own, 0);
        return own;
    }
    l->line.len = 0;
    return &l->line;
}

static void give_line_back(struct pl_logger *l, struct pl_buf *text) {
    if (text != &l->line || text->size > LINE_KEPT_BYTES) pl_buf_free(text);
    if (text == &l->line) atomic_store(&l->line_lent, false);
}

void pl_log_emit_as(struct pl_logger *l, const struct pl_buf *line, enum pl_level level, const char *event,
                    uint64_t wall_ms, const struct pl_field *fields, size_t count) {
    const struct pl_log_options *o = &l->options;
    struct pl_buf own, *text = borrow_line(l, &own);
    if (line == NULL) {
        format_event(l, text, o->format, level, event, wall_ms, fields, count);
        line = text;
    }
    if (pl_log_wants(l, level)) put_own(l, line->data, line->len);
    if (o->tap != NULL) {
        if (line != text || o->format != PL_LOG_JSON) {
            text->len = 0;
            format_event(l, text, PL_LOG_JSON, level, event, wall_ms, fields, count);
        }
        if (text->len > 0) o->tap(o->tap_ctx, level, event, text->data, text->len - 1);
    }
    give_line_back(l, text);
}

void pl_log_emit(struct pl_logger *l, enum pl_level level, const char *event, const struct pl_field *fields,
                 size_t count) {
    bool tapped = l->options.tap != NULL && level >= l->options.tap_min;
    if (!tapped && !pl_log_wants(l, level)) return;
    pl_log_emit_as(l, NULL, level, event, pl_wall_ms(l->options.clock), fields, count);
}

int64_t pl_log_sample(struct pl_log_sampler *s, uint64_t now_ms) {
    if (now_ms < s->next_ms) {
        s->left_out++;
        return -1;
    }
    int64_t left_out = s->left_out;
    *s = (struct pl_log_sampler){ .next_ms = now_ms + SAMPLE_MS };
    return left_out;
}

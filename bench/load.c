/* load.c - a closed loop of requests over kept connections, for a given time. Who has asked when it is over
 * is waited for: what the proxy has done and what was answered are the same requests.
 *
 *     load PORT CONNECTIONS IDLE MS BODY_BYTES TYPE PATH...
 *
 * Each connection asks for the PATHs in turn, the next one as soon as it is answered: POST with BODY_BYTES of
 * TYPE (further header lines may follow it), or GET when there are none. "PATH MODEL" puts that model into a
 * JSON body. IDLE further connections serve one request each and are held. Every connection has had an answer
 * when "ready" is printed; a line of input starts the loop, a line of figures ends it, the end of input ends
 * the process.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, HEAD_MOST = 4096, WAYS_MOST = 256, READ_BYTES = 1 << 18, HEAD_ROOM = 1024 };

struct message {
    char *bytes;
    size_t len;
};

struct conn {
    int fd;
    bool writing, body,
        chunked;  /* waits for room to write; its reply's head is over; and its body in chunks */
    char tail[6]; /* the last five bytes of those */
    size_t way, sent, used, left;
    int64_t began_ns;
    char head[HEAD_MOST + 1];
};

static struct message ways[WAYS_MOST];
static size_t way_count, answered, failed, broken, latency_room;
static int64_t *latency_ns;
static int loop_fd;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void note(int64_t ns) {
    if (answered == latency_room) {
        latency_room = latency_room != 0 ? latency_room * 2 : 65536;
        latency_ns = realloc(latency_ns, latency_room * sizeof *latency_ns);
        if (latency_ns == NULL) die("load");
    }
    latency_ns[answered++] = ns;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* JSON bodies are one chat request whose text fills them up; at the least it is what the small one has. */
static size_t write_body(char *out, size_t bytes, const char *type, const char *model) {
    static const char begin[] = "{\"model\":\"%s\",\"max_tokens\":64,\"messages\":[{\"role\":\"user\","
                                "\"content\":\"",
                      end[] = "\"}]}";
    if (strstr(type, "json") == NULL) {
        memset(out, 'a', bytes);
        return bytes;
    }
    size_t n = (size_t)snprintf(out, HEAD_ROOM, begin, model);
    for (; n + sizeof end - 1 < bytes; n++) out[n] = n % 6 == 0 ? ' ' : 'a';
    memcpy(out + n, end, sizeof end - 1);
    return n + sizeof end - 1;
}

static void make_way(struct message *m, char *target, size_t bytes, const char *type) {
    char *space = strchr(target, ' '), *body = malloc(bytes + 2 * HEAD_ROOM);
    const char *model = space != NULL ? space + 1 : "model";
    size_t len = 0, head;
    if (space != NULL) *space = '\0';
    m->bytes = malloc(bytes + 3 * HEAD_ROOM);
    if (body == NULL || m->bytes == NULL) die("load");
    if (bytes != 0) {
        len = write_body(body, bytes, type, model);
        head = (size_t)snprintf(
            m->bytes, HEAD_ROOM,
            "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", target,
            type, len);
    } else {
        head = (size_t)snprintf(m->bytes, HEAD_ROOM, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", target);
    }
    memcpy(m->bytes + head, body, len);
    m->len = head + len;
    free(body);
}

static void watch(struct conn *c, bool writing) {
    struct epoll_event e = { .events = EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0), .data.ptr = c };
    if (writing == c->writing) return;
    c->writing = writing;
    epoll_ctl(loop_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* False: the connection is broken. */
static bool send_on(struct conn *c) {
    const struct message *m = &ways[c->way];
    while (c->sent < m->len) {
        ssize_t n = send(c->fd, m->bytes + c->sent, m->len - c->sent, MSG_NOSIGNAL);
        if (n == -1 && errno == EAGAIN) break;
        if (n == -1) return false;
        c->sent += (size_t)n;
    }
    watch(c, c->sent < m->len);
    return true;
}

static bool ask(struct conn *c, size_t way) {
    c->way = way % way_count;
    c->sent = c->used = c->left = 0;
    c->body = c->chunked = false;
    c->began_ns = now_ns();
    return send_on(c);
}

/* What closes chunks; no text of ours has it within one. */
static int take_chunked(struct conn *c, const char *at, size_t len) {
    for (size_t i = len < 5 ? 0 : len - 5; i < len; i++) {
        memmove(c->tail, c->tail + 1, 4);
        c->tail[4] = at[i];
    }
    return strcmp(c->tail, "0\r\n\r\n") == 0;
}

/* Bytes of a reply. 1: it is whole, 0: there is more to come, -1: this is none that we understand. */
static int take(struct conn *c, const char *at, size_t len) {
    if (!c->body) {
        size_t n = len < HEAD_MOST - c->used ? len : HEAD_MOST - c->used;
        memcpy(c->head + c->used, at, n);
        c->used += n;
        c->head[c->used] = '\0';
        char *end = strstr(c->head, "\r\n\r\n");
        if (end == NULL) return c->used == HEAD_MOST ? -1 : 0;
        size_t head_len = (size_t)(end + 4 - c->head), before = c->used - n;
        *end = '\0';
        const char *length = strcasestr(c->head, "\r\ncontent-length:");
        c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
        if ((length == NULL && !c->chunked) || strncmp(c->head, "HTTP/1.1 ", 9) != 0) return -1;
        if (c->head[9] != '2') failed++;
        c->left = length != NULL ? strtoul(length + 17, NULL, 10) : 0;
        memset(c->tail, 0, sizeof c->tail);
        c->body = true;
        at += head_len - before;
        len -= head_len - before;
    }
    if (c->chunked) return take_chunked(c, at, len);
    if (len > c->left) return -1;
    c->left -= len;
    return c->left == 0;
}

/* One read: as take(), and -1 at its end. */
static int read_some(struct conn *c) {
    static char in[READ_BYTES];
    ssize_t n = recv(c->fd, in, sizeof in, 0);
    if (n == -1 && errno == EAGAIN) return 0;
    return n <= 0 ? -1 : take(c, in, (size_t)n);
}

/* Connected, and its first request on its way. */
static struct conn *begin_one(uint16_t port) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct conn *c = calloc(1, sizeof *c);
    int on = 1;
    if (c == NULL) die("load");
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd == -1 || connect(c->fd, (const struct sockaddr *)(const void *)&a, sizeof a) != 0)
        die("load: connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
    epoll_ctl(loop_fd, EPOLL_CTL_ADD, c->fd, &e);
    if (!ask(c, 0)) die("load: the first request");
    return c;
}

static void await_one(struct conn *c) {
    int whole = 0;
    bool ok = true;
    while (ok && whole == 0) {
        struct pollfd p = { .fd = c->fd, .events = (short)(POLLIN | (c->writing ? POLLOUT : 0)) };
        ok = poll(&p, 1, PATIENCE_MS) > 0;
        if (ok && (p.revents & POLLOUT) != 0) ok = send_on(c);
        if (ok && (p.revents & (POLLIN | POLLHUP)) != 0) whole = read_some(c);
        ok = ok && whole >= 0;
    }
    if (ok) return;
    fprintf(stderr, "load: a connection's first request is not answered: %.200s\n", c->head);
    exit(1);
}

/* Some at a time: fewer than any backlog has room for. Large bodies alone. */
static void open_all(struct conn **all, size_t count, uint16_t port) {
    size_t at_once = ways[0].len < READ_BYTES ? 64 : 1;
    for (size_t i = 0; i < count; i++) {
        all[i] = begin_one(port);
        if ((i + 1) % at_once != 0 && i + 1 != count) continue;
        for (size_t k = i - i % at_once; k <= i; k++) await_one(all[k]);
    }
}

static void run(struct conn **all, size_t count, int64_t ms) {
    int64_t until = now_ns() + ms * 1000000;
    size_t under_way = 0;
    for (size_t i = 0; i < count; i++) {
        if (ask(all[i], i))
            under_way++;
        else
            broken++;
    }
    while (under_way != 0) {
        struct epoll_event events[256];
        int n = epoll_wait(loop_fd, events, 256, PATIENCE_MS);
        if (n == 0) {
            fprintf(stderr, "load: %zu requests are not answered\n", under_way);
            exit(1);
        }
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            int whole = (events[i].events & EPOLLOUT) != 0 && !send_on(c) ? -1 : 0;
            if (whole == 0 && (events[i].events & ~(uint32_t)EPOLLOUT) != 0) whole = read_some(c);
            if (whole == 0) continue;
            int64_t now = now_ns();
            if (whole == 1) note(now - c->began_ns);
            if (whole == 1 && now < until && ask(c, c->way + 1)) continue;
            under_way--;
            if (whole == 1) continue;
            broken++;
            epoll_ctl(loop_fd, EPOLL_CTL_DEL, c->fd, NULL);
        }
    }
}

int main(int argc, char **argv) {
    char line[16];
    if (argc < 8 || argc > 7 + WAYS_MOST) return 2;
    size_t count = strtoul(argv[2], NULL, 10), idle = strtoul(argv[3], NULL, 10);
    uint16_t port = (uint16_t)atoi(argv[1]);
    for (int i = 7; i < argc; i++) make_way(&ways[way_count++], argv[i], strtoul(argv[5], NULL, 10), argv[6]);
    loop_fd = epoll_create1(0);
    struct conn **all = calloc(idle + count, sizeof *all);
    if (all == NULL) die("load");
    open_all(all, idle + count, port); /* the idle ones come first */
    failed = 0;
    printf("ready\n");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) return 1;
    int64_t began = now_ns();
    run(all + idle, count, atoll(argv[4]));
    double seconds = (double)(now_ns() - began) / 1e9;
    if (answered == 0) return 1;
    qsort(latency_ns, answered, sizeof *latency_ns, by_value);
    printf("requests=%zu failed=%zu broken=%zu seconds=%.3f p50_us=%.1f\n", answered, failed, broken, seconds,
           (double)latency_ns[answered / 2] / 1e3);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
    }
    return 0;
}

/* worker.c - the worker behind every proxy of the benchmark: epoll, one thread, answers at once.
 *
 *     worker --listen PORT SOCKET    on a TCP port (nobody in front) and a Unix socket (nginx, HAProxy)
 *     worker -m plimsoll.worker ...  as the interpreter of `plimsoll serve`: on the listener that it was
 * given worker -c ...                  the question whether BentoML is there: yes
 *
 * The path picks the reply: /size/BYTES, or /sse/CHUNKS/GAP_US (0: back to back), whose chunks carry the
 * monotonic time of their writing, both with anything before them; /v1/completions gets 4 KiB, for routers
 * that know a few paths only; anything else gets 100 bytes. Bodies are thrown away. BENCH_CORE is the core it
 * runs on, since a worker of ours is born on the proxy's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 65536,
    EVENTS = 256,
    REPLY_MOST = 1 << 24,
    PATH_BYTES = 128,
    OUR_LISTENER = 3,
    STREAMS_MOST = 4096
};

struct conn {
    int fd;
    bool listener;
    long chunks_left; /* of the stream it is sending; -1: none */
    int64_t due_ns, gap_ns;
    size_t used, body_left; /* of the request at hand, that has still to come */
    char path[PATH_BYTES];
    char in[READ_BYTES];
};

static int loop_fd;
static struct conn *streams[STREAMS_MOST];
static size_t stream_count;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void send_all(int fd, const char *at, size_t len) {
    while (len != 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n == -1 && errno != EAGAIN) return;
        if (n == -1) {
            struct pollfd p = { .fd = fd, .events = POLLOUT };
            poll(&p, 1, 1000);
            continue;
        }
        at += n;
        len -= (size_t)n;
    }
}

static void send_reply(int fd, size_t size) {
    static char text[REPLY_MOST + 256];
    static size_t made = SIZE_MAX, len;
    if (size > REPLY_MOST) size = REPLY_MOST;
    if (made != size) {
        int head = snprintf(
            text, sizeof text,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", size);
        memset(text + head, 'a', size);
        made = size;
        len = (size_t)head + size;
    }
    send_all(fd, text, len);
}

static void send_chunk(struct conn *c) {
    char data[256], chunk[320];
    int n = c->chunks_left > 0
                ? snprintf(data, sizeof data,
                           "data: {\"t\":%lld,\"id\":\"chatcmpl-123\",\"object\":\"chat.completion.chunk\","
                           "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" hello\"}}]}\n\n",
                           (long long)now_ns())
                : snprintf(data, sizeof data, "data: [DONE]\n\n");
    int len = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n%s", (unsigned)n, data,
                       c->chunks_left == 0 ? "0\r\n\r\n" : "");
    send_all(c->fd, chunk, (size_t)len);
    c->chunks_left--;
}

static void answer(struct conn *c, const char *path) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    long chunks, gap_us;
    size_t size = 100;
    const char *sse = strstr(path, "/sse/"), *sized = strstr(path, "/size/");
    if (sse != NULL && sscanf(sse, "/sse/%ld/%ld", &chunks, &gap_us) == 2) {
        c->chunks_left = chunks;
        c->gap_ns = gap_us * 1000;
        send_all(c->fd, head, sizeof head - 1);
        while (c->gap_ns == 0 && c->chunks_left >= 0) send_chunk(c);
        if (c->gap_ns == 0 || stream_count == STREAMS_MOST) return;
        c->due_ns = now_ns() + c->gap_ns;
        streams[stream_count++] = c;
        return;
    }
    if (sized != NULL)
        sscanf(sized, "/size/%zu", &size);
    else if (strcmp(path, "/v1/completions") == 0)
        size = 4096;
    send_reply(c->fd, size);
}

static void stop_stream(size_t i) { streams[i] = streams[--stream_count]; }

static void let_go(struct conn *c) {
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i] == c) stop_stream(i);
    close(c->fd);
    free(c);
}

/* Takes the head of a request, if it is there: bytes of it, or 0. */
static size_t take_head(struct conn *c) {
    c->in[c->used] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    if (end == NULL) return 0;
    *end = '\0';
    const char *length = strcasestr(c->in, "\r\ncontent-length:"), *path = strchr(c->in, ' ');
    c->body_left = length != NULL ? strtoul(length + 17, NULL, 10) : 0;
    snprintf(c->path, sizeof c->path, "%.*s", path != NULL ? (int)strcspn(path + 1, " ") : 0,
             path != NULL ? path + 1 : "");
    return (size_t)(end + 4 - c->in);
}

static void drop(struct conn *c, size_t len) {
    memmove(c->in, c->in + len, c->used - len);
    c->used -= len;
}

static void on_readable(struct conn *c) {
    ssize_t n = read(c->fd, c->in + c->used, sizeof c->in - 1 - c->used);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) let_go(c);
        return;
    }
    c->used += (size_t)n;
    for (;;) {
        bool waits = c->body_left != 0;
        size_t len = waits ? 0 : take_head(c);
        if (!waits && len == 0) return;
        drop(c, len);
        len = c->used < c->body_left ? c->used : c->body_left;
        drop(c, len);
        c->body_left -= len;
        if (c->body_left != 0) return;
        answer(c, c->path);
    }
}

static void add(int fd, bool listener) {
    struct conn *c = calloc(1, sizeof *c);
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
    if (c == NULL) exit(1);
    c->fd = fd;
    c->listener = listener;
    c->chunks_left = -1;
    epoll_ctl(loop_fd, EPOLL_CTL_ADD, fd, &e);
}

static void on_connection(struct conn *l) {
    int on = 1, fd;
    while ((fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                   sizeof on); /* no matter that it fails on a Unix socket */
        add(fd, false);
    }
}

static void stream_on(void) {
    int64_t now = now_ns();
    for (size_t i = 0; i < stream_count;) {
        struct conn *c = streams[i];
        if (now >= c->due_ns) {
            send_chunk(c);
            c->due_ns += c->gap_ns;
        }
        if (c->chunks_left < 0)
            stop_stream(i);
        else
            i++;
    }
}

static int listen_at(int family, const struct sockaddr *address, socklen_t len) {
    int on = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, len) == 0 && listen(fd, 4096) == 0) return fd;
    perror("worker: listen");
    exit(1);
}

static void open_listeners(int argc, char **argv) {
    if (argc != 4 || strcmp(argv[1], "--listen") != 0) {
        fcntl(OUR_LISTENER, F_SETFL, O_NONBLOCK);
        add(OUR_LISTENER, true);
        return;
    }
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", argv[3]);
    unlink(un.sun_path);
    add(listen_at(AF_INET, (const struct sockaddr *)(const void *)&in, sizeof in), true);
    add(listen_at(AF_UNIX, (const struct sockaddr *)(const void *)&un, sizeof un), true);
}

int main(int argc, char **argv) {
    const char *core = getenv("BENCH_CORE");
    if (argc > 1 && strcmp(argv[1], "-c") == 0) return 0;
    if (core != NULL) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)atoi(core), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    loop_fd = epoll_create1(0);
    open_listeners(argc, argv);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(loop_fd, events, EVENTS, stream_count != 0 ? 1 : -1);
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (c->listener)
                on_connection(c);
            else
                on_readable(c);
        }
        stream_on();
    }
}

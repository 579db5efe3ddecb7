/* streams.c - many streams at a time; measures each chunk from its writing to our reading.
 *
 *     streams PORT PATH STREAMS ROUNDS
 *
 * Each of STREAMS connections asks for PATH, ROUNDS times one after the other. Prints one line of figures.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 20000, PACE_US = 300 };

struct stream {
    int fd, rounds_left;
    size_t used;
    char in[32768];
};

static int64_t *latency_ns;
static size_t count, room;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void note(int64_t ns) {
    if (count == room) {
        room = room != 0 ? room * 2 : 65536;
        latency_ns = realloc(latency_ns, room * sizeof *latency_ns);
        if (latency_ns == NULL) exit(1);
    }
    latency_ns[count++] = ns;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Takes whole events; 1 when the last one of a stream came. */
static int take_events(struct stream *s, int64_t now) {
    char *at = s->in, *end;
    int ended = 0;
    s->in[s->used] = '\0';
    while ((end = strstr(at, "\n\n")) != NULL) {
        *end = '\0';
        const char *sent = strstr(at, "{\"t\":");
        if (sent != NULL) note(now - atoll(sent + 5));
        if (strstr(at, "[DONE]") != NULL) ended = 1;
        at = end + 2;
    }
    s->used -= (size_t)(at - s->in);
    memmove(s->in, at, s->used);
    return ended;
}

static int open_stream(uint16_t port) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (const struct sockaddr *)(const void *)&a, sizeof a) != 0) {
        perror("streams: connect");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int main(int argc, char **argv) {
    char request[1024];
    size_t live = 0, broken = 0;
    if (argc != 5) return 2;
    int most = atoi(argv[3]), loop_fd = epoll_create1(0);
    int len = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", argv[2]);
    for (int i = 0; i < most; i++) {
        struct stream *s = calloc(1, sizeof *s);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = s };
        if (s == NULL) return 1;
        s->fd = open_stream((uint16_t)atoi(argv[1]));
        s->rounds_left = atoi(argv[4]);
        epoll_ctl(loop_fd, EPOLL_CTL_ADD, s->fd, &e);
        if (write(s->fd, request, (size_t)len) == len) live++;
        usleep(PACE_US); /* so that they do not march in step */
    }
    int64_t began = now_ns();
    while (live != 0) {
        struct epoll_event events[256];
        int n = epoll_wait(loop_fd, events, 256, PATIENCE_MS);
        if (n == 0) {
            fprintf(stderr, "streams: %zu are still open\n", live);
            return 1;
        }
        for (int i = 0; i < n; i++) {
            struct stream *s = events[i].data.ptr;
            ssize_t got = read(s->fd, s->in + s->used, sizeof s->in - 1 - s->used);
            int64_t now = now_ns();
            if (got > 0) s->used += (size_t)got;
            if (got > 0 && !take_events(s, now)) continue;
            if (got <= 0) broken++;
            if (got > 0 && --s->rounds_left > 0 && write(s->fd, request, (size_t)len) == len) continue;
            close(s->fd);
            live--;
        }
    }
    double seconds = (double)(now_ns() - began) / 1e9;
    if (count == 0) return 1;
    qsort(latency_ns, count, sizeof *latency_ns, by_value);
    printf("chunks=%zu broken=%zu per_s=%.0f p50_us=%.1f p99_us=%.1f\n", count, broken,
           (double)count / seconds, (double)latency_ns[count / 2] / 1e3,
           (double)latency_ns[count * 99 / 100] / 1e3);
    return broken != 0;
}

#include "cli/gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "worker/devices.h"

enum { TEXT_BYTES = 65536, LIMIT_MS = 10000 };

/* What `nvidia-smi -L` prints; 0 when it is not there, fails or takes too long. */
static size_t ask(char text[TEXT_BYTES]) {
    int ends[2], status = 0;
    size_t len = 0;
    if (pipe2(ends, O_CLOEXEC) == -1) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        int nothing = open("/dev/null", O_RDWR);
        dup2(nothing, 0), dup2(ends[1], 1), dup2(nothing, 2);
        execlp("nvidia-smi", "nvidia-smi", "-L", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    uint64_t until = pl_now_us() / 1000 + LIMIT_MS;
    bool ended = false;
    while (pid != -1 && !ended && len < TEXT_BYTES) {
        uint64_t now = pl_now_us() / 1000;
        struct pollfd p = { .fd = ends[0], .events = POLLIN };
        if (now >= until || poll(&p, 1, (int)(until - now)) != 1) break;
        ssize_t n = read(ends[0], text + len, TEXT_BYTES - len);
        ended = n == 0;
        if (n > 0) len += (size_t)n;
    }
    close(ends[0]);
    if (pid == -1) return 0;
    if (!ended) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR) continue;
    return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? len : 0;
}

bool pl_seen_gpus(struct pl_config *c, size_t service, struct pl_err *err) {
    static char text[TEXT_BYTES], listed[PL_DEVICES_TEXT], list[PL_DEVICES_TEXT];
    static bool asked;
    const struct pl_service_config *s = &c->services[service];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *place;
    bool told;
    if (s->gpus.all && s->gpus_per_worker <= 0) return true;
    if (!asked) pl_devices_listed(text, ask(text), listed); /* only where somebody has chosen among them */
    asked = true;
    if (pl_devices_by_uuid(s, listed, visible, list)) {
        enum pl_origin origin = pl_config_origin(c, service, "gpus", &place);
        if (!pl_config_set(c, service, "gpus", list, origin == PL_FROM_DEFAULT ? PL_FROM_PRESET : origin,
                           place, err))
            return false;
    }
    pl_config_origin(c, service, "gpus", &place);
    return pl_devices_of(s, visible, 1, list, &told, err) ||
           (place[0] != '\0' ? pl_err_wrap(err, "%s", place) : false);
}

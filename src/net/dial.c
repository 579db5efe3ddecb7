#include "net/dial.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum pl_dialled pl_dial_unix(const char *path, int *fd) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof address.sun_path) return PL_DIAL_REFUSED;
    memcpy(address.sun_path, path, len + 1);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s == -1) return PL_DIAL_FAILED;
    if (connect(s, (const struct sockaddr *)&address, sizeof address) == 0) {
        *fd = s;
        return PL_DIAL_OK;
    }
    enum pl_dialled result = errno == EAGAIN ? PL_DIAL_BUSY : PL_DIAL_REFUSED;
    close(s);
    return result;
}

#include "door/host.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { HOST_MOST = 255 };

static bool is_port(const char *text) {
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && text[digits] == '\0';
}

static bool is(const char *host, const char *name) {
    return name != NULL && name[0] != '\0' && strcasecmp(host, name) == 0;
}

bool pl_host_is_known(const char *host, size_t len, const char *own, const char *machine) {
    char text[HOST_MOST + 1];
    struct in_addr four;
    struct in6_addr six;
    if (len == 0 || len > HOST_MOST || memchr(host, 0, len) != NULL) return false;
    memcpy(text, host, len);
    text[len] = '\0';
    if (text[0] == '[') {
        char *close = strchr(text, ']');
        if (close == NULL || (close[1] != '\0' && (close[1] != ':' || !is_port(close + 2)))) return false;
        *close = '\0';
        return inet_pton(AF_INET6, text + 1, &six) == 1;
    }
    char *colon = strchr(text, ':');
    if (colon != NULL && !is_port(colon + 1)) return false;
    if (colon != NULL) *colon = '\0';
    return inet_pton(AF_INET, text, &four) == 1 || is(text, "localhost") || is(text, own) ||
           is(text, machine);
}

#include "base/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { DEEPEST = 64 };

static bool remove_level(int at, const char *name, int level) {
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return true;
    if ((errno != EISDIR && errno != EPERM) || level >= DEEPEST) return false;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd == -1 ? NULL : fdopendir(fd);
    if (d == NULL) {
        if (fd != -1) close(fd);
        return false;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        remove_level(dirfd(d), e->d_name, level + 1);
    }
    closedir(d);
    return unlinkat(at, name, AT_REMOVEDIR) == 0;
}

bool pl_remove_tree(int at, const char *name) { return remove_level(at, name, 0); }

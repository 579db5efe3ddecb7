#include "base/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PASSES = 8 };

int pl_tree_open(int at, const char *name) {
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool pl_tree_make(const char *path) {
    char part[PATH_MAX];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *at = part + 1; *at != '\0'; at++) {
        if (*at != '/') continue;
        *at = '\0';
        bool ok = mkdir(part, 0700) == 0 || errno == EEXIST;
        *at = '/';
        if (!ok) return false;
    }
    return mkdir(part, 0700) == 0 || errno == EEXIST;
}

static void clear_level(int fd, dev_t device, int depth);

static bool remove_entry(int folder, const char *name, dev_t device, int depth) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == -1) return errno == ENOENT;
    if (!S_ISDIR(st.st_mode)) return unlinkat(folder, name, 0) == 0;
    if (st.st_dev != device || depth >= PL_TREE_DEPTH) return false;
    int inner = pl_tree_open(folder, name);
    if (inner == -1) return false;
    clear_level(inner, device, depth + 1);
    return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* Removing while reading may hide entries, so it is read again until a pass finds nothing to remove. */
static void clear_level(int fd, dev_t device, int depth) {
    bool again = true;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        close(fd);
        return;
    }
    for (int passes = 0; again && passes < MOST_PASSES; passes++) {
        again = false;
        rewinddir(d);
        for (struct dirent *e; (e = readdir(d)) != NULL;)
            if (!is_dots(e->d_name) && remove_entry(dirfd(d), e->d_name, device, depth)) again = true;
    }
    closedir(d);
}

void pl_tree_clear(int fd) {
    struct stat st;
    if (fstat(fd, &st) == 0)
        clear_level(fd, st.st_dev, 1);
    else
        close(fd);
}

bool pl_tree_remove(int at, const char *name) {
    struct stat st;
    return fstat(at, &st) == 0 && remove_entry(at, name, st.st_dev, 1);
}

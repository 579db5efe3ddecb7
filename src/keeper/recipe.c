#include "keeper/recipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/wire.h"

static bool fail(int error) {
    errno = error;
    return false;
}

static bool read_whole(int fd, struct pl_keeper_recipe *r, size_t *bytes) {
    struct stat st;
    if (fstat(fd, &st) == -1) return false;
    if (st.st_size < (off_t)sizeof(struct pl_recipe_head) || st.st_size > PL_KEEPER_RECIPE_BYTES)
        return fail(EMSGSIZE);
    *bytes = (size_t)st.st_size;
    r->text = malloc(*bytes);
    if (r->text == NULL) return fail(ENOMEM);
    return pread(fd, r->text, *bytes, 0) == (ssize_t)*bytes || fail(EIO);
}

static char *next_word(char **at, char *end) {
    char *word = *at;
    char *stop = word < end ? memchr(word, 0, (size_t)(end - word)) : NULL;
    if (stop == NULL) return NULL;
    *at = stop + 1;
    return word;
}

static bool split(struct pl_keeper_recipe *r, struct pl_recipe_head head, char *end, const char *marker) {
    static const char own[] = "PLIMSOLL_GENERATION=";
    char *at = r->text + sizeof head;
    uint32_t kept = 0;
    r->folder = next_word(&at, end);
    if (r->folder == NULL) return false;
    for (uint32_t i = 0; i < head.argc; i++) {
        r->argv[i] = next_word(&at, end);
        if (r->argv[i] == NULL) return false;
    }
    r->envp[kept++] = (char *)(uintptr_t)marker;
    for (uint32_t i = 0; i < head.envc; i++) {
        char *word = next_word(&at, end);
        if (word == NULL) return false;
        if (strncmp(word, own, sizeof own - 1) != 0) r->envp[kept++] = word;
    }
    return at == end;
}

bool pl_keeper_read_recipe(int fd, const char *marker, struct pl_keeper_recipe *r) {
    size_t bytes;
    struct pl_recipe_head head;
    memset(r, 0, sizeof *r);
    if (!read_whole(fd, r, &bytes)) return false;
    memcpy(&head, r->text, sizeof head);
    /* A word is at least its NUL. */
    if (head.argc == 0 || head.argc > bytes || head.envc > bytes) return fail(EBADMSG);
    r->argv = calloc((size_t)head.argc + 1, sizeof *r->argv);
    r->envp = calloc((size_t)head.envc + 2, sizeof *r->envp);
    if (r->argv == NULL || r->envp == NULL) return fail(ENOMEM);
    return split(r, head, r->text + bytes, marker) || fail(EBADMSG);
}

void pl_keeper_free_recipe(struct pl_keeper_recipe *r) {
    free(r->text);
    free(r->argv);
    free(r->envp);
    memset(r, 0, sizeof *r);
}

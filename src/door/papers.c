#include "door/papers.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
#define X(sym, name) name,
    PL_PAPERS(X)
#undef X
};

bool pl_papers_add(struct pl_papers *p, enum pl_paper_kind kind, const char *place, const void *bytes,
                   size_t len, struct pl_err *err) {
    if (p->at == NULL) p->at = calloc(PL_PAPERS_MOST, sizeof *p->at);
    if (p->count == PL_PAPERS_MOST)
        return PL_FAIL(err, PL_E_CONFIG, "more than %d files for certificates and keys", PL_PAPERS_MOST);
    if (len > PL_PAPER_BYTES || strlen(place) >= PL_PAPER_PLACE)
        return PL_FAIL(err, PL_E_CONFIG, "%.200s: larger than 4 MiB, or its path is too long", place);
    char *copy = p->at != NULL ? malloc(len + 1) : NULL;
    if (copy == NULL) return PL_FAIL(err, PL_E_NOMEM, "out of memory");
    memcpy(copy, bytes, len);
    copy[len] = '\0';
    struct pl_paper *one = &p->at[p->count++];
    *one = (struct pl_paper){ .kind = kind, .bytes = copy, .len = len };
    memcpy(one->place, place, strlen(place));
    return true;
}

const struct pl_paper *pl_papers_find(const struct pl_papers *p, enum pl_paper_kind kind, size_t n) {
    for (size_t i = 0; i < p->count; i++)
        if (p->at[i].kind == kind && n-- == 0) return &p->at[i];
    return NULL;
}

bool pl_papers_same(const struct pl_papers *a, const struct pl_papers *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->at[i].kind != b->at[i].kind || a->at[i].len != b->at[i].len ||
            strcmp(a->at[i].place, b->at[i].place) != 0 ||
            memcmp(a->at[i].bytes, b->at[i].bytes, a->at[i].len) != 0)
            return false;
    return true;
}

bool pl_papers_write(const struct pl_papers *p, struct pl_buf *out) {
    for (size_t i = 0; i < p->count; i++) {
        const struct pl_paper *one = &p->at[i];
        if (!pl_buf_addf(out, "%s %zu %zu\n%s", kind_names[one->kind], strlen(one->place), one->len,
                         one->place) ||
            !pl_buf_add(out, one->bytes, one->len))
            return false;
    }
    return true;
}

bool pl_papers_read(struct pl_papers *p, const char *text, size_t len, struct pl_err *err) {
    const char *at = text, *end = text + len;
    while (at < end) {
        char line[64], kind[24], place[PL_PAPER_PLACE];
        size_t place_len = 0, bytes = 0;
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        size_t n = eol != NULL ? (size_t)(eol - at) : sizeof line;
        if (n >= sizeof line) return PL_FAIL(err, PL_E_SYS, "what is held for the door cannot be read");
        memcpy(line, at, n);
        line[n] = '\0';
        at = eol + 1;
        if (sscanf(line, "%23s %zu %zu", kind, &place_len, &bytes) != 3 || place_len >= sizeof place ||
            place_len > (size_t)(end - at) || bytes > (size_t)(end - at) - place_len)
            return PL_FAIL(err, PL_E_SYS, "what is held for the door cannot be read");
        memcpy(place, at, place_len);
        place[place_len] = '\0';
        at += place_len;
        for (unsigned k = 0; k < PL_PAPER_KIND_COUNT; k++)
            if (strcmp(kind, kind_names[k]) == 0 &&
                !pl_papers_add(p, (enum pl_paper_kind)k, place, at, bytes, err))
                return false;
        at += bytes;
    }
    return true;
}

void pl_papers_free(struct pl_papers *p) {
    for (size_t i = 0; i < p->count; i++) {
        OPENSSL_cleanse(p->at[i].bytes, p->at[i].len);
        free(p->at[i].bytes);
    }
    free(p->at);
    *p = (struct pl_papers){ 0 };
}

/* tests/support/json.h - reads the JSON of our own test data. Not for foreign bytes: it aborts on what it
 * does not understand. Strings are latin-1 as the corpora have it: a character 0-255 is that byte. Nothing is
 * freed before json_free(). */
#ifndef PL_TESTS_JSON_H
#define PL_TESTS_JSON_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_LIST, JSON_OBJECT };
struct json {
    enum json_kind kind;
    double number; /* JSON_BOOL: 0 or 1 */
    char *text;    /* JSON_TEXT; NUL-ended besides */
    size_t len;
    char *name;                /* in an object */
    struct json *first, *next; /* children */
};

static inline _Noreturn void json_die(const char *why, const char *at) {
    fprintf(stderr, "test data: %s at %.40s\n", why, at);
    abort();
}

static inline struct json *json_new(enum json_kind kind) {
    struct json *j = calloc(1, sizeof *j);
    if (j == NULL) abort();
    j->kind = kind;
    return j;
}

static inline void json_free(struct json *j) {
    while (j != NULL) {
        struct json *next = j->next;
        json_free(j->first);
        free(j->text);
        free(j->name);
        free(j);
        j = next;
    }
}

static inline unsigned json_hex4(const char *s) {
    char digits[5] = { s[0], s[1], s[2], s[3], '\0' };
    return (unsigned)strtoul(digits, NULL, 16);
}

static inline struct json *json_text(const char **at) {
    const char *s = *at + 1;
    struct json *j = json_new(JSON_TEXT);
    j->text = malloc(strlen(s) + 1);
    if (j->text == NULL) abort();
    for (; *s != '"'; s++) {
        unsigned c = (unsigned char)*s;
        if (c == '\0') json_die("open string", *at);
        if (c == '\\') {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            s++;
            const char *simple = *s != '\0' ? strchr(from, *s) : NULL;
            if (simple != NULL) {
                c = (unsigned char)to[simple - from];
            } else if (*s == 'u') {
                c = json_hex4(s + 1);
                s += 4;
            } else {
                json_die("escape", s);
            }
        }
        if (c > 0xff) json_die("character above latin-1", s);
        j->text[j->len++] = (char)c;
    }
    j->text[j->len] = '\0';
    *at = s + 1;
    return j;
}

static inline void json_blank(const char **at) { *at += strspn(*at, " \t\r\n"); }

static inline struct json *json_value(const char **at) {
    static const struct {
        const char *word;
        enum json_kind kind;
        int value;
    } words[] = { { "null", JSON_NULL, 0 }, { "true", JSON_BOOL, 1 }, { "false", JSON_BOOL, 0 } };
    json_blank(at);
    char open = **at;
    if (open == '"') return json_text(at);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strncmp(*at, words[i].word, strlen(words[i].word)) != 0) continue;
        *at += strlen(words[i].word);
        struct json *j = json_new(words[i].kind);
        j->number = words[i].value;
        return j;
    }
    if (open != '[' && open != '{') {
        char *end;
        struct json *j = json_new(JSON_NUMBER);
        j->number = strtod(*at, &end);
        if (end == *at) json_die("value", *at);
        *at = end;
        return j;
    }
    struct json *j = json_new(open == '[' ? JSON_LIST : JSON_OBJECT), **tail = &j->first;
    for ((*at)++;;) {
        json_blank(at);
        if (**at == ']' || **at == '}') break;
        if (**at == ',') {
            (*at)++;
            continue;
        }
        char *name = NULL;
        if (open == '{') {
            struct json *key = json_text(at);
            name = key->text;
            key->text = NULL;
            json_free(key);
            json_blank(at);
            if (*(*at)++ != ':') json_die("colon", *at);
        }
        *tail = json_value(at);
        (*tail)->name = name;
        tail = &(*tail)->next;
    }
    (*at)++;
    return j;
}

static inline struct json *json_get(const struct json *object, const char *name) {
    for (struct json *j = object->first; j != NULL; j = j->next)
        if (strcmp(j->name, name) == 0) return j;
    return NULL;
}
static inline const char *json_str(const struct json *object, const char *name) {
    struct json *j = json_get(object, name);
    return j != NULL && j->kind == JSON_TEXT ? j->text : "";
}
/* The first of what a list or an object holds, or NULL. */
static inline struct json *json_first(const struct json *object, const char *name) {
    struct json *j = json_get(object, name);
    return j != NULL ? j->first : NULL;
}
/* 1 or 0; -1: null, or not there */
static inline int json_flag(const struct json *object, const char *name) {
    struct json *j = json_get(object, name);
    return j == NULL || j->kind != JSON_BOOL ? -1 : j->number != 0;
}
/* Is this number in a list? A list that is not there has none. */
static inline bool json_has(const struct json *list, double number) {
    for (struct json *j = list != NULL ? list->first : NULL; j != NULL; j = j->next)
        if (j->kind == JSON_NUMBER && j->number == number) return true;
    return false;
}

/* One value a line; a list of them. */
static inline struct json *json_lines(const char *path) {
    FILE *f = fopen(path, "rb");
    struct json *list = json_new(JSON_LIST), **tail = &list->first;
    char *line = NULL;
    size_t room = 0;
    if (f == NULL) json_die("cannot open", path);
    while (getline(&line, &room, f) > 0) {
        const char *at = line;
        *tail = json_value(&at);
        tail = &(*tail)->next;
    }
    free(line);
    fclose(f);
    return list;
}
#endif

#include "llama/grammar.h"

#include <stdint.h>
#include <string.h>

/* What a repetition copies: elements of the literal or class before it, one for a rule, a bracket or a token.
 */
struct walk {
    const char *at, *end;
    int depth, rules;
    uint64_t item, copied;
    bool ours; /* made of a schema: what may be missing begins with a text of its own */
    /* of the alternative that is read, and of the brackets around it: may it be empty? */
    struct {
        bool before, last; /* everything before the last item; that one */
        bool other;        /* an alternative before this one */
        int run;           /* items in a row that may be missing, up to the last one */
    } level[PL_LLM_GRAMMAR_DEPTH + 2];
};

/* An item begins. */
static void begin(struct walk *w, bool may_be_empty) {
    __typeof__(&w->level[0]) l = &w->level[w->depth];
    l->before = l->before && l->last;
    l->run = l->last ? l->run + 1 : 0;
    l->last = may_be_empty;
}

static void open_level(struct walk *w) {
    w->level[w->depth].before = w->level[w->depth].last = true;
    w->level[w->depth].other = false;
    w->level[w->depth].run = -1; /* nothing is no item */
}

static bool level_may_be_empty(const struct walk *w) {
    return w->level[w->depth].other || (w->level[w->depth].before && w->level[w->depth].last);
}

static const char *may_be_missing(struct walk *w) {
    w->level[w->depth].last = true;
    return w->level[w->depth].run + 1 > PL_LLM_GRAMMAR_OPTIONS && !w->ours
               ? "it has more than 16 items in a row that may be missing"
               : NULL;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void blanks(struct walk *w) {
    while (w->at < w->end && strchr(" \t\r\n", *w->at) != NULL) w->at++;
}

static bool number(struct walk *w, uint64_t *out) {
    const char *from = w->at;
    for (*out = 0; w->at < w->end && is_digit(*w->at); w->at++)
        if (*out < PL_LLM_GRAMMAR_COPIES) *out = *out * 10 + (uint64_t)(*w->at - '0');
    return w->at > from;
}

static const char *copy(struct walk *w) {
    w->copied += w->item;
    return w->item > PL_LLM_GRAMMAR_COPIES || w->copied > PL_LLM_GRAMMAR_COPIES
               ? "its repetitions make more than 65,536 elements"
               : NULL;
}

/* {m}, {m,} or {m,n}. llama.cpp 0.5 makes n - m rules out of it: without end where n is the smaller one. */
static const char *repetition(struct walk *w) {
    static const char form[] = "a repetition is {m}, {m,} or {m,n} with m not above n";
    uint64_t low, high;
    blanks(w);
    if (!number(w, &low)) return form;
    blanks(w);
    high = low;
    if (w->at < w->end && *w->at == ',') {
        w->at++;
        blanks(w);
        if (number(w, &high) && high < low) return form;
        blanks(w);
    }
    if (w->at == w->end || *w->at++ != '}') return form;
    if (low > PL_LLM_GRAMMAR_TIMES || high > PL_LLM_GRAMMAR_TIMES)
        return "it repeats something more than 2,000 times";
    if (high < low) high = low; /* {m,} */
    if (high > 1 && w->level[w->depth].last) return "it repeats something that may be empty";
    if (high > 1) w->item *= high;
    const char *fault = low == 0 ? may_be_missing(w) : NULL;
    return fault != NULL ? fault : copy(w);
}

/* A literal or a class, behind its first character. */
static void quoted(struct walk *w, char last) {
    const char *from = w->at;
    while (w->at < w->end && *w->at != last) w->at += *w->at == '\\' && w->at + 1 < w->end ? 2 : 1;
    w->item = (uint64_t)(w->at - from) + 1;
    begin(w, last == '"' && w->at == from);
    if (w->at < w->end) w->at++;
}

static const char *step(struct walk *w) {
    char c = *w->at++;
    const char *fault;
    switch (c) {
    case '#':
        while (w->at < w->end && *w->at != '\n') w->at++;
        return NULL;
    case '"':
    case '[':
        quoted(w, c == '[' ? ']' : '"');
        return NULL;
    case '(':
        if (w->depth == PL_LLM_GRAMMAR_DEPTH) return "it nests brackets deeper than 64";
        w->depth++;
        open_level(w);
        return NULL;
    case ')': {
        bool empty = level_may_be_empty(w);
        if (w->depth == 0) return "it closes a bracket that was not opened";
        w->depth--;
        w->item = 1;
        begin(w, empty);
        return NULL;
    }
    case '|':
        w->level[w->depth].other = level_may_be_empty(w);
        w->level[w->depth].before = w->level[w->depth].last = true;
        w->level[w->depth].run = -1;
        return NULL;
    case '{':
        return repetition(w);
    case '=':
        open_level(w);
        return ++w->rules > PL_LLM_GRAMMAR_RULES ? "it has more than 2,048 rules" : NULL;
    case '*':
    case '+':
    case '?':
        w->item += c == '+'; /* what is before it, and a rule */
        if (c != '+' && (fault = may_be_missing(w)) != NULL) return fault;
        return copy(w);
    case ' ':
    case '\t':
    case '\r':
    case '\n':
        return NULL;
    default: /* a name, a token, any character; a rule is taken for one that is never empty */
        while (c != '.' && w->at < w->end && strchr(" \t\r\n#\"[](){}|*+?=.", *w->at) == NULL) w->at++;
        w->item = 1;
        begin(w, false);
        return NULL;
    }
}

const char *pl_llm_grammar_fault(const char *text, size_t len, bool ours) {
    struct walk w = { .at = text, .end = text + len, .item = 1, .ours = ours };
    const char *fault = NULL;
    if (len > PL_LLM_GRAMMAR_BYTES) return "it is longer than 64 KiB";
    if (memchr(text, '\0', len) != NULL) return "it holds a NUL";
    open_level(&w);
    while (w.at < w.end && fault == NULL) fault = step(&w);
    return fault;
}

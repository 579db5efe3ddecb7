#include "llama/grammar.h"

#include <stdint.h>
#include <string.h>

/* What a repetition copies: elements of the literal or class before it, one for a rule, a bracket or a token.
 */
struct walk {
    const char *at, *end;
    int depth, rules;
    uint64_t item, copied;
};

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
    if (high > 1) w->item *= high;
    return copy(w);
}

/* A literal or a class, behind its first character. */
static void quoted(struct walk *w, char last) {
    const char *from = w->at;
    while (w->at < w->end && *w->at != last) w->at += *w->at == '\\' && w->at + 1 < w->end ? 2 : 1;
    w->item = (uint64_t)(w->at - from) + 1;
    if (w->at < w->end) w->at++;
}

static const char *step(struct walk *w) {
    char c = *w->at++;
    switch (c) {
    case '#':
        while (w->at < w->end && *w->at != '\n') w->at++;
        return NULL;
    case '"':
    case '[':
        quoted(w, c == '[' ? ']' : '"');
        return NULL;
    case '(':
        return ++w->depth > PL_LLM_GRAMMAR_DEPTH ? "it nests brackets deeper than 64" : NULL;
    case ')':
        w->depth--;
        w->item = 1;
        return NULL;
    case '{':
        return repetition(w);
    case '=':
        return ++w->rules > PL_LLM_GRAMMAR_RULES ? "it has more than 2,048 rules" : NULL;
    case '*':
    case '+':
    case '?':
        w->item += c == '+'; /* what is before it, and a rule */
        return copy(w);
    default:
        if (strchr(" \t\r\n", c) == NULL) w->item = 1;
        return NULL;
    }
}

const char *pl_llm_grammar_fault(const char *text, size_t len) {
    struct walk w = { .at = text, .end = text + len, .item = 1 };
    const char *fault = NULL;
    if (len > PL_LLM_GRAMMAR_BYTES) return "it is longer than 64 KiB";
    if (memchr(text, '\0', len) != NULL) return "it holds a NUL";
    while (w.at < w.end && fault == NULL) fault = step(&w);
    return fault;
}

#include "llama/grammar.h"

#include <string.h>

const char *pl_llm_grammar_fault(const char *text, size_t len) {
    int depth = 0, rules = 0;
    char quote = '\0'; /* the character that ends a literal or a class */
    bool comment = false;
    if (len > PL_LLM_GRAMMAR_BYTES) return "it is longer than 64 KiB";
    if (memchr(text, '\0', len) != NULL) return "it holds a NUL";
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (comment) {
            comment = c != '\n';
        } else if (quote != '\0') {
            if (c == '\\') i++;
            if (c == quote) quote = '\0';
        } else if (c == '#') {
            comment = true;
        } else if (c == '"' || c == '[') {
            quote = c == '[' ? ']' : '"';
        } else if (c == '(') {
            if (++depth > PL_LLM_GRAMMAR_DEPTH) return "it nests brackets deeper than 64";
        } else if (c == ')') {
            depth--;
        } else if (c == '=' && i >= 2 && text[i - 1] == ':' && text[i - 2] == ':') {
            if (++rules > PL_LLM_GRAMMAR_RULES) return "it has more than 2,048 rules";
        } else if (c == '{') { /* {m,n} copies what is before it that often */
            unsigned long n = 0, most = 0;
            for (size_t k = i + 1; k < len && text[k] != '}'; k++) {
                n = text[k] >= '0' && text[k] <= '9' && n < 1000000 ? n * 10 + (unsigned long)(text[k] - '0')
                                                                    : n;
                if (text[k] == ',') n = 0;
                most = n > most ? n : most;
            }
            if (most > 2000) return "it repeats something more than 2,000 times";
        }
    }
    return NULL;
}

/* grammar.h - is a grammar that a client sent harmless to parse. llama.cpp's parser of GBNF recurses: 20,000
 * nested brackets end the process (llama-server's too); it never comes back from {9,3}; and a page of
 * repetitions can be made of a gigabyte of rules. What passes here may still be no grammar; that it says
 * itself. */
#ifndef PL_LLAMA_GRAMMAR_H
#define PL_LLAMA_GRAMMAR_H
#include <stdbool.h>
#include <stddef.h>

enum {
    PL_LLM_GRAMMAR_BYTES = 65536,
    PL_LLM_GRAMMAR_DEPTH = 64,
    PL_LLM_GRAMMAR_RULES = 2048,
    PL_LLM_GRAMMAR_TIMES = 2000,
    PL_LLM_GRAMMAR_OPTIONS = 16,
    PL_LLM_GRAMMAR_COPIES = 65536 /* elements that its repetitions are written out to */
};

/* `ours`: made of a schema (schema.h), not written by a client. NULL: harmless. Otherwise what is too much,
 * for people. */
const char *pl_llm_grammar_fault(const char *text, size_t len, bool ours);
#endif

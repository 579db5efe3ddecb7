/* base/text_count.h - what a text is made of: letters, digits, runs of them, letters of other scripts.
 *
 * One pass over bytes as they come, in pieces of any size with the same result. It is what a token estimate
 * (admit/tokens.h) goes by; the classes are those that byte-pair encoders cut at: words, digits, punctuation,
 * white space, and the first bytes of UTF-8 sequences by length and script.
 */
#ifndef PL_BASE_TEXT_COUNT_H
#define PL_BASE_TEXT_COUNT_H
#include <stddef.h>
#include <stdint.h>

struct pl_text_counts {
    uint64_t bytes;
    uint64_t letters, words; /* ASCII letters, and runs of them */
    uint64_t digits;
    uint64_t puncts, punct_runs; /* what is left of ASCII, control characters included */
    uint64_t space_runs;
    uint64_t two;   /* first bytes of sequences of two: Latin with accents, Greek, Cyrillic, Arabic, Hebrew */
    uint64_t three; /* of three, but for the next two: Indic scripts, Thai, typographic marks */
    uint64_t cjk;   /* U+3000..U+9FFF: kana, ideographs */
    uint64_t hangul; /* U+A000..U+DFFF */
    uint64_t four;   /* emoji and rarer ideographs */
    uint8_t last;    /* inside: class of the byte before, for runs */
};

void pl_text_count(struct pl_text_counts *c, const char *text, size_t len);
/* The next byte begins a new text: runs do not go on over the border. */
static inline void pl_text_count_break(struct pl_text_counts *c) { c->last = 0; }
#endif

/* Sixty-four bytes at a time: a mask of bits for each class, counted; a run begins where a bit has none
 * before it. Short pieces and other machines go byte by byte, by the same classes. */
#include "base/text_count.h"

#include <stdbool.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LETTER = 1, PUNCT, SPACE, OTHER }; /* of `last` */

static void count_byte(struct pl_text_counts *c, unsigned char b) {
    unsigned lower = b | 0x20u;
    uint8_t class = OTHER;
    if (b >= 0x80) {
        if (b >= 0xf0)
            c->four++;
        else if (b >= 0xea && b <= 0xed)
            c->hangul++;
        else if (b >= 0xe3 && b <= 0xe9)
            c->cjk++;
        else if (b >= 0xe0)
            c->three++;
        else if (b >= 0xc0)
            c->two++;
    } else if (lower >= 'a' && lower <= 'z') {
        class = LETTER;
        c->letters++;
        c->words += c->last != LETTER;
    } else if (b >= '0' && b <= '9') {
        c->digits++;
    } else if (b == ' ' || (b >= '\t' && b <= '\r')) {
        class = SPACE;
        c->space_runs += c->last != SPACE;
    } else {
        class = PUNCT;
        c->puncts++;
        c->punct_runs += c->last != PUNCT;
    }
    c->last = class;
}

#ifdef __SSE2__
struct masks {
    uint64_t letter, digit, space, high, two, three, cjk, hangul, four;
};

static uint64_t within(__m128i x, unsigned char low, unsigned char high) {
    __m128i clamped = _mm_min_epu8(_mm_max_epu8(x, _mm_set1_epi8((char)low)), _mm_set1_epi8((char)high));
    return (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(clamped, x));
}

static void read_masks(const char *p, struct masks *m) {
    *m = (struct masks){ 0 };
    for (unsigned i = 0; i < 4; i++) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + (size_t)16 * i));
        unsigned at = 16 * i;
        uint64_t high = (uint64_t)(unsigned)_mm_movemask_epi8(x);
        m->letter |= within(_mm_or_si128(x, _mm_set1_epi8(0x20)), 'a', 'z') << at;
        m->digit |= within(x, '0', '9') << at;
        m->space |= (within(x, '\t', '\r') | within(x, ' ', ' ')) << at;
        m->high |= high << at;
        if (high == 0) continue;
        m->two |= within(x, 0xc0, 0xdf) << at;
        m->three |= (within(x, 0xe0, 0xe2) | within(x, 0xee, 0xef)) << at;
        m->cjk |= within(x, 0xe3, 0xe9) << at;
        m->hangul |= within(x, 0xea, 0xed) << at;
        m->four |= within(x, 0xf0, 0xff) << at;
    }
}

static uint64_t ones(uint64_t mask) { return (uint64_t)__builtin_popcountll(mask); }
static uint64_t runs(uint64_t mask, bool goes_on) { return ones(mask & ~(mask << 1 | (goes_on ? 1 : 0))); }

static void count_block(struct pl_text_counts *c, const char *p) {
    struct masks m;
    read_masks(p, &m);
    uint64_t punct = ~(m.letter | m.digit | m.space | m.high);
    c->letters += ones(m.letter);
    c->words += runs(m.letter, c->last == LETTER);
    c->digits += ones(m.digit);
    c->puncts += ones(punct);
    c->punct_runs += runs(punct, c->last == PUNCT);
    c->space_runs += runs(m.space, c->last == SPACE);
    if (m.high != 0) {
        c->two += ones(m.two);
        c->three += ones(m.three);
        c->cjk += ones(m.cjk);
        c->hangul += ones(m.hangul);
        c->four += ones(m.four);
    }
    c->last = m.letter >> 63 ? LETTER : punct >> 63 ? PUNCT : m.space >> 63 ? SPACE : OTHER;
}
#endif

void pl_text_count(struct pl_text_counts *c, const char *text, size_t len) {
    size_t i = 0;
    c->bytes += len;
#ifdef __SSE2__
    for (; len - i >= 64; i += 64) count_block(c, text + i);
#endif
    for (; i < len; i++) count_byte(c, (unsigned char)text[i]);
}

/* http/json_number.h - a JSON number, character by character, as somebody's demand: rounded up, and never an
 * overflow. The machine is inline: bodies may be nothing but numbers. */
#ifndef PL_HTTP_JSON_NUMBER_H
#define PL_HTTP_JSON_NUMBER_H
#include "http/json_scan.h"

struct pl_json_number {
    uint8_t state;
    bool negative, exponent_negative;
    int digits_behind, exponent;
    double mantissa;
};

enum {
    PL_NUM_SIGN,
    PL_NUM_ZERO,
    PL_NUM_WHOLE,
    PL_NUM_POINT,
    PL_NUM_FRACTION,
    PL_NUM_E,
    PL_NUM_E_SIGN,
    PL_NUM_EXPONENT
};

static inline void pl_json_number_digit(struct pl_json_number *n, char c) {
    if (n->mantissa < 1e300) {
        n->mantissa = n->mantissa * 10 + (c - '0');
        n->digits_behind += n->state == PL_NUM_FRACTION;
    } else {
        n->digits_behind -= n->state == PL_NUM_WHOLE; /* too small to matter, but its place counts */
    }
}

static inline bool pl_json_number_to(struct pl_json_number *n, uint8_t state) {
    n->state = state;
    return true;
}

static inline bool pl_json_number_power(struct pl_json_number *n, char c) {
    if (n->exponent < 100000) n->exponent = n->exponent * 10 + (c - '0');
    return pl_json_number_to(n, PL_NUM_EXPONENT);
}

/* False: it cannot go on so; nothing has changed. */
static inline bool pl_json_number_char(struct pl_json_number *n, char c) {
    bool is_digit = c >= '0' && c <= '9', is_e = c == 'e' || c == 'E';
    switch (n->state) {
    case PL_NUM_SIGN:
        if (c == '-' && !n->negative) {
            n->negative = true;
            return true;
        }
        if (!is_digit) return false;
        n->state = c == '0' ? PL_NUM_ZERO : PL_NUM_WHOLE;
        pl_json_number_digit(n, c);
        return true;
    case PL_NUM_ZERO:
    case PL_NUM_WHOLE:
        if (is_digit && n->state == PL_NUM_WHOLE) {
            pl_json_number_digit(n, c);
            return true;
        }
        if (c == '.') return pl_json_number_to(n, PL_NUM_POINT);
        return is_e && pl_json_number_to(n, PL_NUM_E);
    case PL_NUM_POINT:
    case PL_NUM_FRACTION:
        if (is_digit) {
            n->state = PL_NUM_FRACTION;
            pl_json_number_digit(n, c);
            return true;
        }
        return is_e && n->state == PL_NUM_FRACTION && pl_json_number_to(n, PL_NUM_E);
    case PL_NUM_E:
        if (c == '+' || c == '-') {
            n->exponent_negative = c == '-';
            return pl_json_number_to(n, PL_NUM_E_SIGN);
        }
        return is_digit && pl_json_number_power(n, c);
    default:
        return is_digit && pl_json_number_power(n, c);
    }
}

static inline bool pl_json_number_ends(const struct pl_json_number *n) { /* it may end here */
    return n->state == PL_NUM_ZERO || n->state == PL_NUM_WHOLE || n->state == PL_NUM_FRACTION ||
           n->state == PL_NUM_EXPONENT;
}
static inline bool pl_json_number_is_whole(const struct pl_json_number *n) { /* digits only */
    return !n->negative && (n->state == PL_NUM_ZERO || n->state == PL_NUM_WHOLE);
}
/* Any number of digits may follow, and nothing changes but its value. */
static inline bool pl_json_number_takes_digits(const struct pl_json_number *n) {
    return n->state == PL_NUM_WHOLE || n->state == PL_NUM_FRACTION || n->state == PL_NUM_EXPONENT;
}
/* Nothing but a minus yet. */
static inline bool pl_json_number_is_sign(const struct pl_json_number *n) {
    return n->state == PL_NUM_SIGN && n->negative;
}
struct pl_json_asked pl_json_number_asked(const struct pl_json_number *n);
#endif

/* http/json_number.c - a JSON number, character by character, as somebody's demand: rounded up, and never an
 * overflow. */
#include "http/json_inside.h"

enum { SIGN, ZERO, WHOLE, POINT, FRACTION, E, E_SIGN, EXPONENT };

void pl_json_number_begin(struct pl_json_number *n) { *n = (struct pl_json_number){ 0 }; }

static void digit(struct pl_json_number *n, char c) {
    if (n->mantissa < 1e300) {
        n->mantissa = n->mantissa * 10 + (c - '0');
        n->digits_behind += n->state == FRACTION;
    } else {
        n->digits_behind -= n->state == WHOLE; /* too small to matter, but its place counts */
    }
}

static bool to(struct pl_json_number *n, uint8_t state) {
    n->state = state;
    return true;
}

static bool exponent_digit(struct pl_json_number *n, char c) {
    if (n->exponent < 100000) n->exponent = n->exponent * 10 + (c - '0');
    return to(n, EXPONENT);
}

bool pl_json_number_char(struct pl_json_number *n, char c) {
    bool is_digit = c >= '0' && c <= '9', is_e = c == 'e' || c == 'E';
    switch (n->state) {
    case SIGN:
        if (c == '-' && !n->negative) {
            n->negative = true;
            return true;
        }
        if (!is_digit) return false;
        n->state = c == '0' ? ZERO : WHOLE;
        digit(n, c);
        return true;
    case ZERO:
    case WHOLE:
        if (is_digit && n->state == WHOLE) {
            digit(n, c);
            return true;
        }
        if (c == '.') return to(n, POINT);
        return is_e && to(n, E);
    case POINT:
    case FRACTION:
        if (is_digit) {
            n->state = FRACTION;
            digit(n, c);
            return true;
        }
        return is_e && n->state == FRACTION && to(n, E);
    case E:
        if (c == '+' || c == '-') {
            n->exponent_negative = c == '-';
            return to(n, E_SIGN);
        }
        return is_digit && exponent_digit(n, c);
    default:
        return is_digit && exponent_digit(n, c);
    }
}

bool pl_json_number_ends(const struct pl_json_number *n) {
    return n->state == ZERO || n->state == WHOLE || n->state == FRACTION || n->state == EXPONENT;
}

bool pl_json_number_is_whole(const struct pl_json_number *n) {
    return !n->negative && (n->state == ZERO || n->state == WHOLE);
}

bool pl_json_number_is_sign(const struct pl_json_number *n) { return n->state == SIGN && n->negative; }

struct pl_json_asked pl_json_number_asked(const struct pl_json_number *n) {
    struct pl_json_asked a = { .there = true };
    double value = n->mantissa;
    int power = (n->exponent_negative ? -n->exponent : n->exponent) - n->digits_behind;
    if (value <= 0) return a;
    if (n->negative) {
        a.unbounded = true;
        return a;
    }
    for (; power > 0 && value < (double)PL_JSON_ASKED_MOST; power--) value *= 10;
    for (; power < 0 && value > 0; power++) value /= 10;
    if (value >= (double)PL_JSON_ASKED_MOST) {
        a.value = PL_JSON_ASKED_MOST;
        return a;
    }
    a.value = (uint64_t)value;
    if ((double)a.value < value || a.value == 0) a.value++; /* a fraction asks for the next whole */
    return a;
}

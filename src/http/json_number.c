#include "http/json_number.h"

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

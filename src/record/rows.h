/* record/rows.h - a row on its way from the loop to the thread, as bytes: head, then values in the order of
 * its statement's parameters. Both ends are ours: nothing foreign is read here. */
#ifndef PL_RECORD_ROWS_H
#define PL_RECORD_ROWS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_row_kind { PL_ROW_EVENT, PL_ROW_REQUEST, PL_ROW_SAMPLE, PL_ROW_VERDICT, PL_ROW_KINDS };

struct pl_value {
    enum { PL_V_NULL, PL_V_INT, PL_V_REAL, PL_V_TEXT } kind;
    int64_t i;
    double d;
    const char *text;
    size_t len;
};
struct pl_value pl_v_int(int64_t i);    /* negative: NULL */
struct pl_value pl_v_count(uint64_t n); /* 0: NULL */
struct pl_value pl_v_id(uint64_t n);    /* any 64 bits */
struct pl_value pl_v_real(double d);    /* negative or NAN: NULL */
struct pl_value pl_v_signed(double d);  /* NAN: NULL */
struct pl_value pl_v_text(const char *s);
struct pl_value pl_v_bytes(const char *s, size_t len); /* s NULL: NULL */

/* Bytes written to `out`, or 0: it does not fit. */
size_t pl_row_pack(char *out, size_t room, enum pl_row_kind kind, const struct pl_value *values,
                   size_t count);

/* Walks rows that lie one behind the other. */
struct pl_row {
    enum pl_row_kind kind;
    size_t count, bytes; /* bytes: of the whole row */
    const char *at;
};
bool pl_row_first(const char *rows, size_t len, struct pl_row *out);
/* Takes the next value; texts are borrowed from the rows. */
struct pl_value pl_row_value(struct pl_row *r);
#endif

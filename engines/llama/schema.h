/* schema.h - a JSON schema as GBNF, for answers that must be JSON of that shape.
 *
 * The subset: object (properties, required, additionalProperties: false), array (items, minItems, maxItems),
 * enum, const, string (minLength, maxLength, format date, time, date-time, uuid), integer (minimum, maximum),
 * number, boolean, null, type lists, anyOf, oneOf, $ref into $defs or definitions (recursion allowed). Notes
 * such as title and description say nothing. Any other keyword is an error with its place: a keyword that is
 * dropped in silence is an answer that breaks its schema (llama-server does that). Properties come in the
 * order of the schema; those not required may be missing. White space is at most one blank, so that a small
 * model cannot wander in it. An object without properties is any object. Pure.
 */
#ifndef PL_LLAMA_SCHEMA_H
#define PL_LLAMA_SCHEMA_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* False: `fault` names the place as a JSON pointer and what is wrong there. */
bool pl_llm_schema(const json_t *schema, struct pl_buf *gbnf, char *fault, size_t fault_room);
#endif

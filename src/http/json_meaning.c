/* http/json_meaning.c - what the values of a body mean for admission: by the key they stand under, the key of
 * the top level they stand below, and how a text begins. */
#include <string.h>
#include <strings.h>

#include "http/json_inside.h"

enum { SNIFF_BYTES = 11 }; /* enough for every begin that we know */

enum pl_json_key pl_json_key_of(const char *text, size_t len) {
    static const struct {
        const char *text;
        uint8_t len;
    } keys[] = {
#define X(sym, word) { word, sizeof word - 1 },
        PL_JSON_KEYS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].len == len && memcmp(keys[i].text, text, len) == 0) return (enum pl_json_key)(i + 1);
    return PL_KEY_OTHER;
}

/* Its whole JSON stands in the prompt: templates write it out. */
static bool is_rendered(const struct pl_json_scan *s) {
    return s->top == PL_KEY_TOOLS || s->top == PL_KEY_FUNCTIONS || s->top == PL_KEY_DOCUMENTS;
}

/* It bounds the answer, and no tokenizer sees it. */
static bool is_format(const struct pl_json_scan *s) {
    return s->top == PL_KEY_RESPONSE_FORMAT || s->top == PL_KEY_GUIDED_JSON ||
           s->top == PL_KEY_GUIDED_GRAMMAR || s->top == PL_KEY_STRUCTURED_OUTPUTS ||
           s->top == PL_KEY_GRAMMAR || s->top == PL_KEY_JSON_SCHEMA;
}

static bool is_prompt(const struct pl_json_scan *s) {
    return s->top == PL_KEY_PROMPT || s->top == PL_KEY_INPUT || s->top == PL_KEY_INPUTS ||
           s->top == PL_KEY_INPUT_IDS;
}

static bool counts_as_text(const struct pl_json_scan *s) {
    return !is_format(s) && s->top != PL_KEY_MODEL && s->top != PL_KEY_USER && s->top != PL_KEY_METADATA;
}

/* Where bytes of a file belong, and an address of one. */
static bool is_blob_key(uint8_t key) {
    return key == PL_KEY_URL || key == PL_KEY_IMAGE_URL || key == PL_KEY_IMAGE || key == PL_KEY_IMAGES ||
           key == PL_KEY_DATA || key == PL_KEY_FILE_DATA;
}

/* Directly in the object of the top level, or in one that holds parameters. */
static bool is_parameter_place(const struct pl_json_scan *s) {
    if (s->depth == 1) return s->levels[1].object;
    return s->depth == 2 && s->levels[2].object &&
           (s->top == PL_KEY_PARAMETERS || s->top == PL_KEY_SAMPLING_PARAMS || s->top == PL_KEY_OPTIONS);
}

static void add_text(struct pl_json_scan *s, const char *bytes, size_t len) {
    if (is_rendered(s)) s->facts.tools_bytes += len;
    if (is_format(s)) s->facts.format_bytes += len;
    if (s->count_text && counts_as_text(s)) pl_text_count(&s->facts.text, bytes, len);
}

bool pl_json_scan_is_raw(const struct pl_json_scan *s) { return is_rendered(s) || is_format(s); }
void pl_json_scan_add(struct pl_json_scan *s, const char *bytes, size_t len) { add_text(s, bytes, len); }

static bool is_model(const struct pl_json_scan *s) {
    return s->key == PL_KEY_MODEL && s->depth == 1 && s->levels[1].object;
}

void pl_json_scan_value_begins(struct pl_json_scan *s) {
    struct pl_json_level *l = pl_json_top(s);
    if (s->depth == 0 || l->object) {
        if (is_model(s)) {
            s->model_len = 0;
            s->model_over = false;
            s->facts.model[0] = '\0';
        }
        if (s->key == PL_KEY_STREAM_OPTIONS && s->depth == 1) s->facts.has_stream_options = true;
        if (s->key == PL_KEY_ERROR && s->depth == 1) s->facts.has_error = true;
        if (s->key == PL_KEY_USAGE && s->depth <= 2) s->facts.has_usage = true;
        return;
    }
    if (s->top == PL_KEY_CHOICES && s->depth == 2) s->facts.choices++;
    if (l->items < UINT32_MAX) l->items++;
    if (l->items > s->facts.array_items) s->facts.array_items = l->items;
}

/* --- texts */

static void image_ends(struct pl_json_scan *s) {
    pl_base64_image_end(&s->image);
    uint64_t pixels = pl_image_pixels(&s->image.image);
    s->facts.images++;
    if (pixels == 0) s->facts.images_unread++;
    if (pixels > s->facts.image_pixels) s->facts.image_pixels = pixels;
    s->facts.image_pixels_all =
        pixels > UINT64_MAX - s->facts.image_pixels_all ? UINT64_MAX : s->facts.image_pixels_all + pixels;
}

static bool head_has(const struct pl_json_scan *s, const char *word) {
    size_t len = s->token_whole < PL_JSON_TOKEN ? (size_t)s->token_whole : PL_JSON_TOKEN, n = strlen(word);
    for (size_t i = 0; i + n <= len; i++)
        if (strncasecmp(s->token + i, word, n) == 0) return true;
    return false;
}

/* data:image/png;base64, has been read up to its comma. */
static void data_head_ends(struct pl_json_scan *s) {
    bool image = head_has(s, "image/");
    pl_base64_image_init(&s->image);
    s->sniff = image ? PL_SNIFF_BASE64 : PL_SNIFF_BLOB;
    if (image && !head_has(s, "base64")) s->image.image.over = true; /* percent-encoded: not read */
}

/* The rest of a text whose kind is known. */
static void take(struct pl_json_scan *s, const char *bytes, size_t len) {
    while (s->sniff == PL_SNIFF_DATA_HEAD && len > 0) {
        const char *comma = memchr(bytes, ',', len);
        size_t n = comma != NULL ? (size_t)(comma - bytes) + 1 : len;
        size_t room = s->token_whole < PL_JSON_TOKEN ? PL_JSON_TOKEN - (size_t)s->token_whole : 0;
        memcpy(s->token + (PL_JSON_TOKEN - room), bytes, n < room ? n : room);
        s->token_whole += n;
        bytes += n;
        len -= n;
        if (comma != NULL) data_head_ends(s);
    }
    if (s->sniff == PL_SNIFF_BASE64) pl_base64_image_feed(&s->image, bytes, len);
}

static void decide(struct pl_json_scan *s) {
    size_t len = (size_t)s->token_whole;
    s->sniff = PL_SNIFF_TEXT;
    if (len >= 5 && strncasecmp(s->token, "data:", 5) == 0) {
        char rest[SNIFF_BYTES];
        memcpy(rest, s->token + 5, len - 5);
        s->token_whole = 0;
        s->sniff = PL_SNIFF_DATA_HEAD;
        take(s, rest, len - 5);
    } else if (pl_base64_image_begins(s->token, len)) {
        s->sniff = PL_SNIFF_BASE64;
        pl_base64_image_init(&s->image);
        take(s, s->token, len);
    } else if (len >= 7 && is_blob_key(s->key) &&
               (strncasecmp(s->token, "http://", 7) == 0 || strncasecmp(s->token, "https:/", 7) == 0)) {
        s->facts.images_remote++;
    }
}

/* Its value is a number, which servers also read from a text: "100". */
static bool is_demand(const struct pl_json_scan *s) {
    uint8_t k = s->key;
    return is_parameter_place(s) &&
           (k == PL_KEY_N || k == PL_KEY_BEST_OF || (k >= PL_KEY_MAX_TOKENS && k <= PL_KEY_NUM_PREDICT));
}

static void take_model(struct pl_json_scan *s, const char *bytes, size_t len) {
    if (len > PL_JSON_MODEL_MOST - s->model_len) {
        s->model_len = PL_JSON_MODEL_MOST;                /* full: what comes does not fit either */
        memset(s->facts.model, 0, sizeof s->facts.model); /* however much of it had come */
        s->model_over = true;
    }
    if (s->model_over) return;
    memcpy(s->facts.model + s->model_len, bytes, len);
    s->model_len += (uint32_t)len;
    s->facts.model[s->model_len] = '\0';
}

/* Directly in one of `choices`. */
static bool in_choice(const struct pl_json_scan *s) {
    return s->top == PL_KEY_CHOICES && s->depth == 3 && s->levels[3].object;
}

/* {"error":{"message":…}} or {"error":"…"} */
static void take_error(struct pl_json_scan *s, const char *bytes, size_t len) {
    bool here = s->top == PL_KEY_ERROR &&
                ((s->depth == 1 && s->key == PL_KEY_ERROR) || (s->depth == 2 && s->key == PL_KEY_MESSAGE));
    size_t has = strlen(s->facts.error_message), room = PL_JSON_ERROR_MOST - has;
    if (!here || !s->levels[s->depth].object) return;
    if (len > room) len = room;
    for (size_t i = 0; i < len; i++) s->facts.error_message[has + i] = bytes[i] != '\0' ? bytes[i] : ' ';
    s->facts.error_message[has + len] = '\0';
}

static void count_begin(struct pl_json_scan *s) {
    if (!is_rendered(s)) pl_text_count_break(&s->facts.text);
}

void pl_json_scan_text(struct pl_json_scan *s, const char *bytes, size_t len) {
    /* A text that is an image is none for the tokenizer, where an image belongs; elsewhere it may be both. */
    if (!is_blob_key(s->key)) {
        if (s->token_whole == 0 && s->sniff == PL_SNIFF_OPEN) count_begin(s);
        add_text(s, bytes, len);
    }
    if (is_model(s)) take_model(s, bytes, len);
    if (s->top == PL_KEY_ERROR) take_error(s, bytes, len);
    if (s->sniff == PL_SNIFF_OPEN) {
        size_t window = is_demand(s) ? PL_JSON_TOKEN : SNIFF_BYTES, n = window - (size_t)s->token_whole;
        if (n > len) n = len;
        memcpy(s->token + s->token_whole, bytes, n);
        s->token_whole += n;
        bytes += n;
        len -= n;
        if (window == SNIFF_BYTES && s->token_whole == window) decide(s);
        if (window != SNIFF_BYTES && len > 0) s->sniff = PL_SNIFF_BLOB; /* no number is as long */
    }
    if (s->sniff != PL_SNIFF_OPEN) take(s, bytes, len);
}

/* --- what is asked for */

static void demand(struct pl_json_asked *a, struct pl_json_asked more) {
    if (!more.there) return;
    a->there = true;
    a->unbounded |= more.unbounded;
    a->times++;
    a->at = more.at;
    a->len = more.len;
    if (more.value > a->value) a->value = more.value;
}

static void usage_number(struct pl_json_scan *s, uint64_t value) {
    uint8_t key = s->key;
    uint64_t *into = key == PL_KEY_PROMPT_TOKENS || key == PL_KEY_INPUT_TOKENS ? &s->facts.prompt_tokens
                     : key == PL_KEY_COMPLETION_TOKENS || key == PL_KEY_OUTPUT_TOKENS
                         ? &s->facts.completion_tokens
                     : key == PL_KEY_CACHED_TOKENS ? &s->facts.cached_tokens
                                                   : NULL;
    if (into != NULL && value > *into) *into = value;
}

/* Below `usage`, which stands at the top or in `response` or `message`. */
static bool in_usage(const struct pl_json_scan *s) {
    uint32_t at = s->top == PL_KEY_USAGE ? 2 : s->top == PL_KEY_RESPONSE || s->top == PL_KEY_MESSAGE ? 3 : 0;
    return at != 0 && s->depth >= at && s->depth <= at + 1 && s->levels[at].object &&
           s->levels[at].key == PL_KEY_USAGE;
}

static void number(struct pl_json_scan *s, struct pl_json_asked a) {
    struct pl_json_facts *f = &s->facts;
    if (in_usage(s)) usage_number(s, a.value);
    if (!is_parameter_place(s)) return;
    switch ((enum pl_json_key)s->key) {
    case PL_KEY_MAX_TOKENS:
    case PL_KEY_MAX_COMPLETION_TOKENS:
    case PL_KEY_MAX_OUTPUT_TOKENS:
    case PL_KEY_MAX_NEW_TOKENS:
    case PL_KEY_N_PREDICT:
    case PL_KEY_NUM_PREDICT:
        demand(&f->max_tokens, a);
        break;
    case PL_KEY_N:
        demand(&f->n, a);
        break;
    case PL_KEY_BEST_OF:
        demand(&f->best_of, a);
        break;
    case PL_KEY_STREAM:
        f->stream |= a.value != 0;
        break;
    default:
        break;
    }
}

void pl_json_scan_number_end(struct pl_json_scan *s) {
    if (s->key == PL_KEY_OTHER) return; /* most numbers mean nothing here */
    struct pl_json_level *l = pl_json_top(s);
    if (s->key == PL_KEY_INDEX && in_choice(s)) {
        uint64_t index = pl_json_number_asked(&s->number).value;
        if (index > s->facts.choice_index) s->facts.choice_index = index;
    }
    if (is_prompt(s) && s->depth >= 2 && !l->object) {
        s->facts.prompt_ids++;
        s->facts.prompts += !l->ids;
        l->ids = true;
    }
    struct pl_json_asked a = pl_json_number_asked(&s->number);
    if (pl_json_number_is_whole(&s->number)) {
        a.at = s->number_at;
        a.len = s->number_len;
    }
    number(s, a);
}

void pl_json_scan_word(struct pl_json_scan *s) {
    bool yes = s->token[0] == 't';
    if (s->token[0] == 'I') number(s, (struct pl_json_asked){ .value = PL_JSON_ASKED_MOST, .there = true });
    if (s->key == PL_KEY_STREAM && is_parameter_place(s)) s->facts.stream |= yes;
    if (s->key == PL_KEY_INCLUDE_USAGE && s->top == PL_KEY_STREAM_OPTIONS) s->facts.include_usage |= yes;
    if (s->token[0] != 'n') return;
    if (s->key == PL_KEY_ERROR && s->depth == 1) s->facts.has_error = false;
    if (s->key == PL_KEY_USAGE && s->depth <= 2 && s->facts.prompt_tokens == 0) s->facts.has_usage = false;
}

static void text_as_number(struct pl_json_scan *s) {
    struct pl_json_number n = { 0 };
    size_t i = 0, len = (size_t)s->token_whole;
    while (len > 0 && s->token[len - 1] == ' ') len--;
    while (i < len && (s->token[i] == ' ' || s->token[i] == '+')) i++;
    while (i + 1 < len && (s->token[i] == '0' || s->token[i] == '_')) i++;
    for (; i < len; i++)
        if (s->token[i] != '_' && !pl_json_number_char(&n, s->token[i])) return;
    if (pl_json_number_ends(&n)) number(s, pl_json_number_asked(&n));
}

void pl_json_scan_text_end(struct pl_json_scan *s) {
    if (is_demand(s)) {
        if (s->sniff == PL_SNIFF_OPEN)
            text_as_number(s);
        else
            number(s, (struct pl_json_asked){ .there = true, .unbounded = true });
        return;
    }
    if (s->key == PL_KEY_FINISH_REASON && in_choice(s)) {
        bool gave_up = s->sniff == PL_SNIFF_OPEN && s->token_whole == 5 &&
                       (memcmp(s->token, "abort", 5) == 0 || memcmp(s->token, "error", 5) == 0);
        s->facts.finished++;
        s->facts.aborted += gave_up;
    }
    if (s->sniff == PL_SNIFF_OPEN) decide(s);
    if (s->sniff == PL_SNIFF_BASE64) image_ends(s);
    if (s->key == PL_KEY_STREAM && is_parameter_place(s))
        s->facts.stream |= s->token_whole > 0 && (s->token[0] | 32) == 't';
    if (is_prompt(s) && (s->depth == 1 || (s->depth == 2 && !s->levels[2].object))) s->facts.prompts++;
}

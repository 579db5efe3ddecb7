#include "worker/silence.h"

void pl_silence_sign(struct pl_silence *s) {
    s->silent_ms = 0;
    s->unanswered = 0;
}

void pl_silence_unanswered(struct pl_silence *s) {
    if (s->unanswered < UINT32_MAX) s->unanswered++;
}

uint64_t pl_silence_look(struct pl_silence *s, uint64_t progress, bool owes, uint64_t now_ms) {
    uint64_t passed = s->seen_ms != 0 && now_ms > s->seen_ms ? now_ms - s->seen_ms : 0;
    s->seen_ms = now_ms;
    if (progress != s->progress) {
        s->progress = progress;
        pl_silence_sign(s);
    } else if (owes) {
        s->silent_ms += passed < PL_SILENCE_STEP_MS ? passed : PL_SILENCE_STEP_MS;
    }
    return pl_silence_ms(s);
}

uint64_t pl_silence_ms(const struct pl_silence *s) {
    return s->unanswered >= PL_SILENCE_PROBES ? s->silent_ms : 0;
}

/* plimsoll-llama: one GGUF model behind HTTP, started by `plimsoll serve FILE.gguf`. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "llama/fit.h"
#include "llama/options.h"
#include "llama/serve.h"

/* --measure: what the model would take here, for `plimsoll plan`. */
static int measure(const struct pl_llm_options *o) {
    struct pl_llm_bytes b;
    struct pl_err err = { 0 };
    uint32_t trained = 0;
    uint32_t parallel = o->parallel != 0 ? o->parallel : 1;
    pl_llm_start(o->verbose);
    if (!pl_llm_measure(o, o->ctx_size, parallel, &b, &trained, &err)) {
        struct pl_buf said;
        pl_buf_init(&said, 4096);
        pl_buf_adds(&said, "{\"error\":");
        pl_buf_add_json(&said, err.msg, strlen(err.msg));
        printf("%s}\n", pl_buf_text(&said));
        pl_buf_free(&said);
        return 3;
    }
    printf("{\"v\":1,\"kind\":\"llama_measure\",\"weights_bytes\":%llu,\"kv_bytes\":%llu,\"state_bytes\":%"
           "llu,\"compute_bytes\":%llu,"
           "\"output_bytes\":%llu,\"cells\":%u,\"parallel\":%u,\"trained\":%u,\"llama\":\"%s\"}\n",
           (unsigned long long)b.weights, (unsigned long long)b.kv, (unsigned long long)b.state,
           (unsigned long long)b.compute, (unsigned long long)b.output,
           o->ctx_size != 0 ? o->ctx_size : trained, parallel, trained, PL_LLAMA_VERSION);
    return 0;
}

int main(int argc, char **argv) {
    struct pl_llm_options o;
    struct pl_err err = { 0 };
    if (!pl_llm_options(argc, argv, &o, &err)) {
        fprintf(stderr, "plimsoll-llama: %s\n", err.msg);
        if (err.hint[0] != '\0') fprintf(stderr, "plimsoll-llama: %s\n", err.hint);
        return 2;
    }
    return o.measure ? measure(&o) : pl_llm_serve(&o);
}

/* ship/manifest.h - Kubernetes objects for one configuration, as texts with a comment at each computed line.
 * Pure: what is wanted in, files out. Why each object looks as it does: docs/manifest.md.
 */
#ifndef PL_SHIP_MANIFEST_H
#define PL_SHIP_MANIFEST_H
#include "base/buf.h"
#include "ship/size.h"

enum { PL_MANIFEST_FILES = 20, PL_MANIFEST_BESIDE = 8, PL_MANIFEST_SECRETS = 4 };
enum pl_ship_kind { PL_SHIP_PYTHON, PL_SHIP_COMMAND, PL_SHIP_LLAMA, PL_SHIP_REMOTE };

struct pl_manifest {
    const char *name;    /* of all objects, and of the service in rules */
    const char *service; /* the service's id */
    enum pl_ship_kind kind;
    bool vllm, sglang; /* engines that compile, and want a large /dev/shm */
    bool openai;       /* a picker may ask it */
    uint16_t port, admin_port;
    const char *run_dir, *state_dir;
    const char *image;
    const char *model_dir; /* where the model is mounted, NULL: it is in the image */
    bool sidecar;          /* in front of a container that is left as it is */
    uint16_t guarded_port; /* sidecar: where that one listens */
    struct pl_size_ask ask;
    struct pl_size size;
    const struct pl_measured *measured;
    bool gpus_guessed;
    double longest_s, wait_s; /* for comments */
    enum pl_scaler scaler;
    uint32_t prewarm;
    unsigned kube; /* 31 of 1.31 */
    const char *gpu_resource, *runtime_class, *claim;
    bool plain_rules;   /* no Prometheus operator */
    const char *alerts; /* deploy/alerts.yaml, for the rules */
    size_t alerts_bytes;
    uint64_t record_bytes;
    bool drain_delay; /* in the configuration: no preStop beside it */
    bool tls;         /* both ports speak TLS: so must the kubelet and Prometheus */
    const char *secret_dirs[PL_MANIFEST_SECRETS]; /* folders of certificates, keys, tokens: a Secret each */
    size_t secret_dir_count;
    const char *secret_env[PL_MANIFEST_SECRETS]; /* variables that hold a secret */
    size_t secret_env_count;
    const char *beside[PL_MANIFEST_BESIDE]; /* files that the configuration reads from its own folder */
    size_t beside_count;
};
struct pl_manifest_file {
    const char *name;
    struct pl_buf text;
    bool resource; /* of the Kustomize base */
};
struct pl_manifest_set {
    struct pl_manifest_file files[PL_MANIFEST_FILES];
    size_t count;
};

/* All objects but plimsoll.yaml. The texts are the caller's: pl_manifest_free. */
void pl_manifest_objects(const struct pl_manifest *m, struct pl_manifest_set *out);
void pl_manifest_free(struct pl_manifest_set *set);
/* What a person must know who applies this, one thing a line. */
void pl_manifest_notes(const struct pl_manifest *m, struct pl_buf *out);
void pl_manifest_containerfile(const struct pl_manifest *m, const char *target, struct pl_buf *out);
void pl_manifest_bento(const struct pl_manifest *m, struct pl_buf *out);
/* The configuration as a pod wants it: listen, admin, replicas, reload, start_timeout and drain_delay set,
 * the rest, its order and its comments as they were. `tree` is that of `text`. False: it is one flow mapping,
 * {like: this}, which has no lines to change. */
struct pl_node;
bool pl_manifest_config(const struct pl_manifest *m, const char *text, size_t len, const struct pl_node *root,
                        struct pl_buf *out);
#endif

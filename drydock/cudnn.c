/* cudnn.c - the entries of cuDNN whose results a caller reads.
 *
 * Convolutions: the frontend asks for engine configurations and is told of exactly one, whose workspace is
 * PLIMSOLL_DRYDOCK_WORKSPACE bytes. Recurrent networks: descriptors remember what they were set to, so that
 * the weight buffer has its true size and PyTorch finds its parameters in it.
 */
#include <string.h>

#include "mathlib.h"

enum { NB_MOST = 8, FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };

/* What a descriptor was set to; one shape for tensors, filters and recurrent networks. */
struct tensor {
    int type, nb;
    int dims[NB_MOST], strides[NB_MOST];
};
struct rnn {
    int cell, bias, bidirectional, type;
    int input, hidden, projected,
        layers; /* projected: size of the output, hidden when there is no projection */
};

static int tensor_create(void **out) {
    *out = calloc(1, sizeof(struct tensor) > 512 ? sizeof(struct tensor) : 512);
    return 0;
}

DD_CREATE(cudnnCreate)
DD_DESTROY(cudnnDestroy)
DD_API int cudnnCreateTensorDescriptor(void **out) { return tensor_create(out); }
DD_API int cudnnCreateFilterDescriptor(void **out) { return tensor_create(out); }
DD_DESTROY(cudnnDestroyTensorDescriptor)
DD_DESTROY(cudnnDestroyFilterDescriptor)
DD_CREATE(cudnnCreateConvolutionDescriptor)
DD_CREATE(cudnnCreateActivationDescriptor)
DD_CREATE(cudnnCreatePoolingDescriptor)
DD_CREATE(cudnnCreateDropoutDescriptor)
DD_CREATE(cudnnCreateRNNDescriptor)
DD_DESTROY(cudnnDestroyRNNDescriptor)
DD_CREATE(cudnnCreateRNNDataDescriptor)
DD_DESTROY(cudnnDestroyRNNDataDescriptor)
DD_CREATE(cudnnCreateCTCLossDescriptor)
DD_CREATE(cudnnCreateSpatialTransformerDescriptor)
DD_TEXT(cudnnGetErrorString, int)

/* --- versions */

DD_API size_t cudnnGetVersion(void) { return (size_t)dd_settings()->cudnn; }

DD_API size_t cudnnGetCudartVersion(void) { return (size_t)dd_settings()->runtime; }

/* 0 major, 1 minor, 2 patch */
DD_API int cudnnGetProperty(int which, int *value) {
    int v = dd_settings()->cudnn;
    *value = which == 0 ? v / 10000 : which == 1 ? v / 100 % 100 : v % 100;
    return 0;
}

DD_API void cudnnGetLastErrorString(char *text, size_t length) {
    if (length > 0) *text = '\0';
}

DD_API int cudnnGetStream(void *handle, void **stream) {
    *stream = NULL;
    return 0;
}

/* --- tensors and filters */

static void keep(struct tensor *t, int type, int nb, const int *dims, const int *strides) {
    t->type = type;
    t->nb = nb < NB_MOST ? nb : NB_MOST;
    for (int i = 0; i < t->nb; i++) {
        t->dims[i] = dims[i];
        t->strides[i] = strides != NULL ? strides[i] : 1;
    }
}

DD_API int cudnnSetTensorNdDescriptor(struct tensor *t, int type, int nb, const int *dims,
                                      const int *strides) {
    keep(t, type, nb, dims, strides);
    return 0;
}

DD_API int cudnnSetFilterNdDescriptor(struct tensor *t, int type, int format, int nb, const int *dims) {
    keep(t, type, nb, dims, NULL);
    return 0;
}

/* Fills as many as were asked for; dimensions that are not there are 1. */
static int tell(const struct tensor *t, int asked, int *type, int *nb, int *dims, int *strides) {
    if (type != NULL) *type = t->type;
    if (nb != NULL) *nb = t->nb;
    for (int i = 0; i < asked; i++) {
        if (dims != NULL) dims[i] = i < t->nb ? t->dims[i] : 1;
        if (strides != NULL) strides[i] = i < t->nb ? t->strides[i] : 1;
    }
    return 0;
}

DD_API int cudnnGetTensorNdDescriptor(const struct tensor *t, int asked, int *type, int *nb, int *dims,
                                      int *strides) {
    return tell(t, asked, type, nb, dims, strides);
}

DD_API int cudnnGetFilterNdDescriptor(const struct tensor *t, int asked, int *type, int *format, int *nb,
                                      int *dims) {
    if (format != NULL) *format = 0;
    return tell(t, asked, type, nb, dims, NULL);
}

/* --- recurrent networks. Cells: 0 and 1 plain, 2 LSTM, 3 GRU. */

DD_API int cudnnSetRNNDescriptor_v8(struct rnn *r, int algorithm, int cell, int bias, int direction,
                                    int input_mode, int type, int precision, int math, int32_t input,
                                    int32_t hidden, int32_t projected, int32_t layers, void *dropout,
                                    uint32_t flags) {
    *r = (struct rnn){ cell, bias, direction == 1, type, input, hidden, projected, layers };
    return 0;
}

static int gates(const struct rnn *r) { return r->cell == 2 ? 4 : r->cell == 3 ? 3 : 1; }

static size_t element(const struct rnn *r) {
    return r->type == DOUBLE ? 8 : r->type == HALF || r->type == BFLOAT16 ? 2 : 4;
}

static int directions(const struct rnn *r) { return r->bidirectional ? 2 : 1; }

static bool projects(const struct rnn *r) { return r->projected != 0 && r->projected != r->hidden; }

static int output_size(const struct rnn *r) { return projects(r) ? r->projected : r->hidden; }

/* Columns of the matrix `id` of a pseudo-layer (layer * directions + direction); ids: input gates, recurrent
 * gates, projection. */
static size_t columns(const struct rnn *r, int pseudo, int id) {
    if (id >= 2 * gates(r)) return (size_t)r->hidden;
    if (id >= gates(r)) return (size_t)output_size(r);
    return (size_t)(pseudo / directions(r) == 0 ? r->input : output_size(r) * directions(r));
}

static size_t rows(const struct rnn *r, int id) {
    return (size_t)(id >= 2 * gates(r) ? r->projected : r->hidden);
}

static int matrices(const struct rnn *r) { return 2 * gates(r) + (projects(r) ? 1 : 0); }

/* Elements of all matrices before matrix `id` of `pseudo`. */
static size_t before(const struct rnn *r, int pseudo, int id) {
    size_t sum = 0;
    for (int p = 0; p <= pseudo; p++)
        for (int i = 0; i < (p < pseudo ? matrices(r) : id); i++) sum += rows(r, i) * columns(r, p, i);
    return sum;
}

static size_t biases_before(const struct rnn *r, int pseudo, int id) {
    size_t each = (size_t)r->hidden, vectors = (size_t)(2 * gates(r));
    return ((size_t)pseudo * vectors + (size_t)id) * each;
}

/* All matrices of all pseudo-layers, then all biases (bias mode 0: there are none). */
DD_API int cudnnGetRNNWeightSpaceSize(void *handle, const struct rnn *r, size_t *bytes) {
    int pseudo = r->layers * directions(r);
    size_t elements = before(r, pseudo - 1, matrices(r));
    if (r->bias != 0) elements += biases_before(r, pseudo, 0);
    *bytes = elements * element(r);
    return 0;
}

DD_API int cudnnGetRNNWeightParams(void *handle, const struct rnn *r, int32_t pseudo, size_t bytes,
                                   const void *space, int32_t id, struct tensor *matrix, void **matrix_at,
                                   struct tensor *bias, void **bias_at) {
    char *base = (char *)(uintptr_t)space;
    int all = r->layers * directions(r);
    bool has_bias = r->bias != 0 && id < 2 * gates(r);
    int shape[3] = { 1, (int)rows(r, id), (int)columns(r, pseudo, id) }, vector[3] = { 1, r->hidden, 1 };
    if (matrix != NULL) keep(matrix, r->type, 3, shape, NULL);
    if (matrix_at != NULL) *matrix_at = base + before(r, pseudo, id) * element(r);
    if (bias != NULL) keep(bias, r->type, has_bias ? 3 : 0, vector, NULL);
    if (bias_at != NULL)
        *bias_at = has_bias
                       ? base + (before(r, all - 1, matrices(r)) + biases_before(r, pseudo, id)) * element(r)
                       : NULL;
    return 0;
}

/* --- the backend API, which the convolution frontend uses. Descriptors keep nothing but their type. */

struct backend {
    int type;
    int64_t spare;
};
enum {
    DATA_TYPE = 1,
    INT64 = 3,
    FLOAT_TYPE = 4,
    DESCRIPTOR = 15,
    CONFIG_WORKSPACE = 303,
    PLAN_WORKSPACE = 402
};

DD_API int cudnnBackendCreateDescriptor(int type, void **descriptor) {
    struct backend *b = calloc(1, sizeof *b);
    if (b != NULL) b->type = type;
    *descriptor = b;
    return 0;
}
DD_DESTROY(cudnnBackendDestroyDescriptor)

/* A query for descriptors answers "one" (the caller made the descriptors and passes them in), a query for a
 * number answers 0, but for the workspace of a plan. */
DD_API int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count,
                                    void *out) {
    if (type == DESCRIPTOR) {
        if (count != NULL) *count = 1;
        return 0;
    }
    bool is_number = type == INT64 || type == FLOAT_TYPE || type == DATA_TYPE;
    bool workspace = name == CONFIG_WORKSPACE || name == PLAN_WORKSPACE;
    if (out != NULL && wanted > 0 && type == INT64)
        *(int64_t *)out = workspace ? (int64_t)dd_settings()->workspace : 0;
    else if (out != NULL && wanted > 0 && is_number)
        *(int32_t *)out = 0;
    if (count != NULL) *count = is_number && wanted > 0 ? 1 : 0;
    return 0;
}

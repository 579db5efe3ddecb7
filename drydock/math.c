/* math.c - the few entries of cuBLAS, cuBLASLt, cuSOLVER, cuSPARSE and cuFFT whose results a caller reads.
 * Every other name of these libraries is a written stub. */
#include "mathlib.h"

#include <string.h>

/* --- cuBLAS */

DD_CREATE(cublasCreate_v2)
DD_DESTROY(cublasDestroy_v2)
DD_TEXT(cublasGetStatusString, int)
DD_TEXT(cublasGetStatusName, int)

DD_API int cublasGetPointerMode_v2(void *handle, int *mode) {
    *mode = 0;
    return 0;
}

DD_API int cublasGetMathMode(void *handle, int *mode) {
    *mode = 0;
    return 0;
}

DD_API int cublasGetVersion_v2(void *handle, int *version) {
    *version = 130200;
    return 0;
}

/* --- cuBLASLt */

DD_CREATE(cublasLtCreate)
DD_DESTROY(cublasLtDestroy)
DD_CREATE(cublasLtMatmulPreferenceCreate)
DD_DESTROY(cublasLtMatmulPreferenceDestroy)
DD_DESTROY(cublasLtMatmulDescDestroy)
DD_DESTROY(cublasLtMatrixLayoutDestroy)

DD_API int cublasLtMatmulDescCreate(void **desc, int compute, int scale) { return dd_object(desc); }

DD_API int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return dd_object(layout);
}

DD_API size_t cublasLtGetVersion(void) { return 130200; }

DD_API size_t cublasLtGetCudartVersion(void) { return (size_t)dd_settings()->runtime; }

/* cublasLtMatmulHeuristicResult_t */
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* Exactly one algorithm. Its workspace is 0: the caller's own workspace is allocated before it asks. */
DD_API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d,
                                          void *preference, int wanted, struct heuristic *out, int *found) {
    if (wanted > 0) memset(out, 0, sizeof *out);
    *found = wanted > 0;
    return 0;
}

/* --- cuSOLVER, cuSPARSE */

DD_CREATE(cusolverDnCreate)
DD_CREATE(cusolverDnCreateParams)
DD_CREATE(cusolverDnCreateSyevjInfo)
DD_CREATE(cusolverDnCreateGesvdjInfo)
DD_CREATE(cusparseCreate)

/* --- cuFFT */

DD_API int cufftCreate(int *plan) {
    static int next = 1;
    *plan = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return 0;
}

DD_API int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *in_embed, long long in_stride,
                               long long in_dist, int in_type, long long *out_embed, long long out_stride,
                               long long out_dist, int out_type, long long batch, size_t *work_bytes,
                               int exec_type) {
    *work_bytes = dd_settings()->workspace;
    return 0;
}

DD_API int cufftGetVersion(int *version) {
    *version = 12200;
    return 0;
}

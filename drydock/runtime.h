/* drydock/runtime.h - own minimal declarations of what crosses the CUDA runtime ABI.
 *
 * The offsets asserted below are those of CUDA 13.0 (cudaDeviceProp 1008 bytes); the CUDA 12 form has 1032.
 * Read from public headers, and measured: PyTorch 2.15 (CUDA 13) and 2.8 (CUDA 12) read every field right.
 */
#ifndef DRYDOCK_RUNTIME_H
#define DRYDOCK_RUNTIME_H
#include <stddef.h>

#include "inside.h"

/* Keeps `error` for cudaGetLastError and returns it. */
int dd_fail(int error);

struct rt_dim3 {
    unsigned x, y, z;
};
struct rt_ipc_handle {
    char bytes[64];
};

/* CUDA 13 appended 64 reserved bytes (88 in all). A CUDA 12 caller has room for these 24 only: write no more,
 * or its stack is overwritten (torch 2.8 crashed in is_pinned()). */
struct rt_pointer {
    int type; /* 0 unregistered, 1 pinned host, 2 device */
    int dev;
    void *device_pointer;
    void *host_pointer;
};
_Static_assert(sizeof(struct rt_pointer) == 24, "pointer attributes");

/* The first 48 bytes; 144 in CUDA 12 and 13. Only these are written. */
struct rt_function {
    size_t shared_bytes;
    size_t const_bytes;
    size_t local_bytes;
    int max_threads;
    int registers;
    int ptx_version;
    int binary_version;
    int cache_mode;
    int max_dynamic_shared;
};
_Static_assert(sizeof(struct rt_function) == 48, "function attributes");

struct rt_prop13 {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t total_mem;
    size_t shared_per_block;
    int regs_per_block;
    int warp;
    size_t pitch;
    int max_threads;
    int block_dim[3];
    int grid_dim[3];
    size_t const_mem;
    int major;
    int minor;
    size_t texture_align;
    size_t texture_pitch_align;
    int sms;
    int integrated;
    int can_map_host;
    int texture_limits[39];
    size_t surface_align;
    int concurrent_kernels;
    int ecc;
    int pci_bus;
    int pci_device;
    int pci_domain;
    int tcc;
    int async_engines;
    int unified_addressing;
    int bus_width;
    int l2;
    int persisting_l2;
    int threads_per_sm;
    int stream_priorities;
    int global_l1;
    int local_l1;
    size_t shared_per_sm;
    int regs_per_sm;
    int managed;
    int multi_gpu_board;
    int multi_gpu_group;
    int native_atomics;
    int pageable_access;
    int concurrent_managed;
    int preemption;
    int host_pointer_for_registered;
    int cooperative;
    size_t shared_optin;
    int pageable_by_host_tables;
    int direct_managed;
    int blocks_per_sm;
    int access_policy_window;
    size_t reserved_shared;
    int host_register;
    int sparse_arrays;
    int host_register_read_only;
    int timeline_semaphores;
    int memory_pools;
    int rdma;
    int rdma_flush;
    int rdma_order;
    int pool_handle_types;
    int deferred_mapping;
    int ipc_event;
    int cluster_launch;
    int rest[64];
};
_Static_assert(sizeof(struct rt_prop13) == 1008, "device properties");
_Static_assert(offsetof(struct rt_prop13, total_mem) == 288, "device properties");
_Static_assert(offsetof(struct rt_prop13, major) == 360, "device properties");
_Static_assert(offsetof(struct rt_prop13, sms) == 384, "device properties");
_Static_assert(offsetof(struct rt_prop13, concurrent_kernels) == 560, "device properties");
_Static_assert(offsetof(struct rt_prop13, threads_per_sm) == 604, "device properties");
_Static_assert(offsetof(struct rt_prop13, shared_per_sm) == 624, "device properties");
_Static_assert(offsetof(struct rt_prop13, shared_optin) == 672, "device properties");
_Static_assert(offsetof(struct rt_prop13, reserved_shared) == 696, "device properties");
_Static_assert(offsetof(struct rt_prop13, memory_pools) == 720, "device properties");
_Static_assert(offsetof(struct rt_prop13, cluster_launch) == 748, "device properties");

/* CUDA 12 keeps clocks, compute mode, kernel timeout, cooperative-multi-device and single-to-double ratio in
 * the struct. */
struct rt_prop12 {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luid_mask;
    size_t total_mem;
    size_t shared_per_block;
    int regs_per_block;
    int warp;
    size_t pitch;
    int max_threads;
    int block_dim[3];
    int grid_dim[3];
    int clock_khz;
    size_t const_mem;
    int major;
    int minor;
    size_t texture_align;
    size_t texture_pitch_align;
    int overlap;
    int sms;
    int kernel_timeout;
    int integrated;
    int can_map_host;
    int compute_mode;
    int texture_limits[40];
    size_t surface_align;
    int concurrent_kernels;
    int ecc;
    int pci_bus;
    int pci_device;
    int pci_domain;
    int tcc;
    int async_engines;
    int unified_addressing;
    int memory_clock_khz;
    int bus_width;
    int l2;
    int persisting_l2;
    int threads_per_sm;
    int stream_priorities;
    int global_l1;
    int local_l1;
    size_t shared_per_sm;
    int regs_per_sm;
    int managed;
    int multi_gpu_board;
    int multi_gpu_group;
    int native_atomics;
    int single_to_double;
    int pageable_access;
    int concurrent_managed;
    int preemption;
    int host_pointer_for_registered;
    int cooperative;
    int cooperative_multi;
    size_t shared_optin;
    int pageable_by_host_tables;
    int direct_managed;
    int blocks_per_sm;
    int access_policy_window;
    size_t reserved_shared;
    int host_register;
    int sparse_arrays;
    int host_register_read_only;
    int timeline_semaphores;
    int memory_pools;
    int rdma;
    int rdma_flush;
    int rdma_order;
    int pool_handle_types;
    int deferred_mapping;
    int ipc_event;
    int cluster_launch;
    int rest[64];
};
_Static_assert(sizeof(struct rt_prop12) == 1032, "device properties of CUDA 12");

#endif

#include "cli/fence.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_TABLE AUDIT_ARCH_X86_64
#define X32_BIT   UINT32_C(0x40000000) /* the x32 table has the same name */
#elif defined(__aarch64__)
#define OUR_TABLE AUDIT_ARCH_AARCH64
#define X32_BIT   UINT32_C(0x80000000)
#endif

#ifdef OUR_TABLE
static const uint32_t refused[] = {
#define REFUSED(call) SYS_##call,
#include "cli/fence.def"
#undef REFUSED
};
enum { CALLS = sizeof refused / sizeof *refused, HEAD = 4, FEET = 2, STEPS = HEAD + CALLS + FEET };
_Static_assert(STEPS < 255, "a jump of BPF is a byte");

/* Every comparison jumps to the last step, which refuses; the one before it lets through. */
static void write_filter(struct sock_filter *f, uint32_t refusal) {
    size_t n = 0;
    const size_t no = STEPS - 1;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_TABLE, 0, (uint8_t)(no - n - 1));
    n++;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, (uint8_t)(no - n - 1), 0);
    n++;
    for (size_t i = 0; i < CALLS; i++, n++)
        f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], (uint8_t)(no - n - 1), 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refusal);
}

/* Without SPEC_ALLOW kernels before 5.16 would switch speculation off for us: that is for programs that run
 * others' code in their own memory. 0, or a thread that could not be had (then nothing is set), or -1 with
 * errno. */
static long put(enum pl_fence mode) {
    struct sock_filter steps[STEPS];
    const struct sock_fprog program = { .len = STEPS, .filter = steps };
    write_filter(steps, mode == PL_FENCE_LOG ? SECCOMP_RET_LOG : SECCOMP_RET_ERRNO | EPERM);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}
#else
static long put(enum pl_fence mode) {
    (void)mode;
    errno = ENOSYS;
    return -1;
}
#endif

bool pl_fence_up(enum pl_fence mode, struct pl_err *err) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1) return PL_FAIL_SYS(err, errno, "set no_new_privs");
    long done = put(mode);
    if (done > 0) return PL_FAIL(err, PL_E_SYS, "thread %ld has a filter of its own", done);
    return done == 0 || PL_FAIL_SYS(err, errno, "set a seccomp filter");
}

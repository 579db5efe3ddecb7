#include "snapshot/oom_line.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

#define GIB(x) ((uint64_t)((x)*1024 * 1024 * 1024 + 0.5))

static bool find(const char *text, struct pl_oom_line *o) { return pl_oom_line_find(text, strlen(text), o); }

TEST(all_forms_of_the_message_are_read) {
    struct pl_oom_line o;
    assert_true(find("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 1 has a "
                     "total capacity of 1024.00 MiB of which 8.00 MiB is "
                     "free. Including non-PyTorch memory, this process has 1016.00 MiB memory in use. Of the "
                     "allocated memory 900.00 MiB is allocated by "
                     "PyTorch, and 16.00 MiB is reserved by PyTorch but unallocated. If reserved",
                     &o));
    assert_true(o.device == 1 && o.total == GIB(1.0) && o.free == 8 << 20 && o.reserved == 916 << 20 &&
                o.other == 100 << 20);
    assert_true(find("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacty of 23.69 GiB "
                     "of which 1.00 GiB is free. Process 7 has 20.00 GiB "
                     "memory in use. 20.00 GiB allowed; Of the allocated memory 18.00 GiB is allocated by "
                     "PyTorch, with 1.50 GiB allocated in private pools "
                     "(e.g., CUDA Graphs), and 500.00 MiB is reserved by PyTorch but unallocated.",
                     &o));
    assert_true(o.total == GIB(23.69) && o.reserved == GIB(18.0) + (UINT64_C(500) << 20));
    assert_true(find("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 2; 7.93 GiB total "
                     "capacity; 6.00 GiB already allocated; 19.00 MiB free; "
                     "6.50 GiB reserved in total by PyTorch)",
                     &o));
    assert_true(o.device == 2 && o.total == GIB(7.93) && o.free == 19 << 20 && o.reserved == GIB(6.5));
}

TEST(the_last_message_counts) {
    struct pl_oom_line o;
    char text[1200];
    int n = 0;
    for (int i = 4; i < 7; i++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; %d.00 GiB total capacity; 1.00 "
                      "GiB already "
                      "allocated; 1.00 GiB free; 2.00 GiB reserved in total by PyTorch)\n",
                      i);
    assert_true(find(text, &o));
    assert_true(o.total == GIB(6.0) && o.other == GIB(3.0));
}

TEST(other_texts_are_none) {
    struct pl_oom_line o;
    assert_false(find("", &o));
    assert_false(find("CUDA out of memory. Tried to allocate ", &o));
    assert_false(find("CUDA out of memory. Tried to allocate 1 GiB. GPU 0 has a total capacity of nan GiB of "
                      "which 1 GiB is free.",
                      &o));
    assert_false(find("CUDA error: out of memory", &o));
}

RUN(cmocka_unit_test(all_forms_of_the_message_are_read), cmocka_unit_test(the_last_message_counts),
    cmocka_unit_test(other_texts_are_none))

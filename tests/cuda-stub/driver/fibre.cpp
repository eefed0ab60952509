#include "fibre.h"

#include <sys/mman.h>

#include <cstdlib>

#include "settings.h"

namespace {

const uint64_t page = 4096;
// Not a power of two, so that the stacks do not all fall into the same lines of the caches.
const uint64_t stack_bytes = 17 * page;
char *stacks;

}  // namespace

asm(R"(
.text
.globl cuda_stub_switch
.hidden cuda_stub_switch
.type cuda_stub_switch,@function
cuda_stub_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size cuda_stub_switch, .-cuda_stub_switch
)");

void start_fibres() {
    void *at = mmap(nullptr, max_fibres * stack_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        say("cannot reserve addresses for the stacks of threads");
        abort();
    }
    stacks = (char *)at;
    for (unsigned i = 0; i < max_fibres; ++i) {
        mprotect(stacks + i * stack_bytes, page, PROT_NONE);
    }
}

uint64_t fibre_stack_lo(unsigned index) { return (uint64_t)stacks + index * stack_bytes + page; }

uint64_t fibre_stack_hi(unsigned index) { return (uint64_t)stacks + (index + 1) * stack_bytes; }

void make_fibre(FibreContext *fibre, unsigned index, void (*entry)()) {
    const uint64_t top = fibre_stack_hi(index) - 64 - index * 320 % page;
    void **at = (void **)(top / 64 * 64);
    *--at = (void *)&abort;  // entry never returns
    *--at = (void *)entry;
    at -= 6;
    fibre->stack_pointer = at;
}

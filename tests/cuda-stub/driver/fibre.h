// A stack of its own for each thread of a block, and the switch between stacks.
#pragma once
#include <cstdint>

const unsigned max_fibres = 1024;

// Where the stack of a fibre lies; [lo, hi).
uint64_t fibre_stack_lo(unsigned index);
uint64_t fibre_stack_hi(unsigned index);
void start_fibres();

#if !defined(__x86_64__)
#error "the switch of stacks is written for x86-64 only"
#endif
struct FibreContext {
    void *stack_pointer;
};
extern "C" void cuda_stub_switch(void **save, void *to);
inline void switch_fibre(FibreContext *from, FibreContext *to) {
    cuda_stub_switch(&from->stack_pointer, to->stack_pointer);
}

// Makes a fibre that will call `entry`, which never returns.
void make_fibre(FibreContext *fibre, unsigned index, void (*entry)());

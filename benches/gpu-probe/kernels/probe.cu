// The kernels of the probe. Each computes something that the CPU can compute to the last bit, so that "it ran" can be checked.

// For the cost of a launch alone.
extern "C" __global__ void nothing() {}

// Stores to an address that is given as a number: null, or one that nothing is mapped at.
extern "C" __global__ void stray_store(unsigned long long address) {
    *reinterpret_cast<volatile float *>(address) = 1.0f;
}

// y = a x + b, rounded once.
extern "C" __global__ void affine(float *y, const float *x, float a, float b, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = __fmaf_rn(a, x[i], b);
    }
}

// A small step of a chain: y = a y + b, in place.
extern "C" __global__ void step(float *y, float a, float b, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = __fmaf_rn(a, y[i], b);
    }
}

// The step many times over: as much work for a value as wanted.
extern "C" __global__ void steps(float *y, const float *x, float a, float b, unsigned rounds, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = x[i];
        for (unsigned r = 0; r < rounds; ++r) {
            value = __fmaf_rn(a, value, b);
        }
        y[i] = value;
    }
}

// Keeps one thread busy for so many nanoseconds, so that the host can look at work that is not done. It ends by itself.
extern "C" __global__ void busy(unsigned long long nanoseconds, unsigned *done) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
    *done = 1;
}

// Copies 16 bytes a thread and turn, for the bandwidth of memory.
extern "C" __global__ void copy16(float4 *y, const float4 *x, unsigned long long n) {
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        y[i] = x[i];
    }
}

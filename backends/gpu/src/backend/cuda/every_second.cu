extern "C" __global__ void every_second(const float *x, float *y, int *places, int length, float plus) {
    extern __shared__ float row[];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const int other = blockDim.x - 1 - threadIdx.x;
    row[other] = at < length ? x[STEP * at] : 0.0f;
    __syncthreads();
    if (at < length) { y[at] = row[blockDim.x - 1 - threadIdx.x] + plus; places[at] = STEP * at; }
}

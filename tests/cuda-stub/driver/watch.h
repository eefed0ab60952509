// Runs code that may crash or never end.
#pragma once
#include <cstddef>

// Gives 0 if `work` returned, else the error of the driver API that its end stands for; the reason goes to `reason`.
// Ends `work` after CUDA_STUB_SECONDS.
int run_watched(void (*work)(), char *reason, size_t reason_bytes);

// What every function of the driver API begins with.
#pragma once
#include <mutex>

#include "error.h"
#include "scheduler.h"

#define API extern "C" __attribute__((visibility("default"))) int

bool initialized();
// A device's context for cuDevicePrimaryCtxRetain.
Context *current_context();
void set_current_context(Context *context);

// Holds the lock for the time of a call, and finds the thread's context and whether it may be used.
struct Call {
    std::unique_lock<std::mutex> lock;
    Context *context = nullptr;
    int error = Success;

    Call();
};

#define ENTER                       \
    Call call;                      \
    if (call.error) {               \
        return call.error;          \
    }                               \
    Context *context = call.context; \
    (void)context

#define FIND_STREAM(handle)                                \
    Stream *stream = stream_of(context, handle);           \
    if (!stream) {                                         \
        return InvalidHandle;                              \
    }

// For calls that are not allowed while a stream captures.
#define REFUSE_IN_CAPTURE(name)                             \
    if (int code = refuse_in_capture(context, name)) {      \
        return code;                                        \
    }

#define NEED(condition)        \
    if (!(condition)) {        \
        return InvalidValue;   \
    }

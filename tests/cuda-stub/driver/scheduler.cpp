#include "scheduler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>

#include "counts.h"
#include "memory.h"
#include "settings.h"

namespace {

int process_error;
const Context *working;
uint64_t streams_made;
unsigned idle_polls;
uint64_t launches_queued;
uint64_t copies_queued;
// Never destroyed, as the driver's own thread outlives the end of the program.
auto &changed = *new std::condition_variable;     // a host function ended
auto &for_thread = *new std::condition_variable;  // there is one to run
auto &host_queue = *new std::deque<std::pair<Stream *, Operation>>;
bool thread_started;
uint64_t calls;  // grows with each enqueue and drain, so that idleness can be seen
thread_local bool inside_host_function;

bool runnable(const Stream *s) {
    return !s->busy && !s->queue.empty() && (!s->queue.front().wait || s->queue.front().wait->done);
}

std::vector<Stream *> runnable_streams(const Context *only) {
    std::vector<Stream *> found;
    for (Context *context : contexts()) {
        if (only && context != only) {
            continue;
        }
        for (auto &stream : context->streams) {
            if (runnable(stream.get())) {
                found.push_back(stream.get());
            }
        }
    }
    return found;
}

Stream *any_of(const std::vector<Stream *> &streams) {
    return streams.empty() ? nullptr : streams[random_below(streams.size())];
}

void settle(Operation &operation) {
    if (operation.signal) {
        operation.signal->done = true;
        operation.signal->time_ms = now_ms();
    }
}

void sweep(Context *context) {
    auto &all = context->streams;
    all.erase(std::remove_if(all.begin() + 1, all.end(),
                             [](auto &s) { return s->destroyed && !s->busy && s->queue.empty(); }),
              all.end());
}

void fail(Context *context, int code) {
    if (!is_sticky(code)) {
        context->pending = code;
        return;
    }
    context->error = code;
    if (settings().sticky_process) {
        process_error = code;
    }
    for (auto &stream : context->streams) {
        for (Operation &operation : stream->queue) {
            settle(operation);
        }
        stream->queue.clear();
    }
}

void finish(Stream *stream, Operation &operation, int code) {
    Context *context = stream->context;
    settle(operation);
    if (code) {
        fail(context, code);
    }
    if (stream->destroyed && stream->queue.empty()) {
        sweep(context);
    }
}

void step(Stream *stream);

// The driver's own thread: runs host functions, and with CUDA_STUB_IDLE_MS goes on with work when nobody calls.
void run_thread() {
    std::unique_lock<std::mutex> lock(driver_mutex());
    uint64_t seen = calls;
    while (true) {
        if (settings().idle_ms > 0 && host_queue.empty()) {
            for_thread.wait_for(lock, std::chrono::milliseconds(settings().idle_ms));
            if (host_queue.empty() && seen == calls) {
                if (Stream *stream = any_of(runnable_streams(nullptr))) {
                    step(stream);
                }
            }
            seen = calls;
        } else {
            for_thread.wait(lock, [] { return !host_queue.empty(); });
        }
        if (host_queue.empty()) {
            continue;
        }
        auto [stream, operation] = std::move(host_queue.front());
        host_queue.pop_front();
        lock.unlock();
        inside_host_function = true;
        operation.host();
        inside_host_function = false;
        lock.lock();
        stream->busy = false;
        finish(stream, operation, 0);
        if (settings().policy == Policy::Eager) {
            while (Stream *next = any_of(runnable_streams(nullptr))) {
                step(next);
            }
        }
        changed.notify_all();
    }
}

void need_thread() {
    if (!thread_started) {
        thread_started = true;
        std::thread(run_thread).detach();
    }
}

void step(Stream *stream) {
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (settings().trace) {
        say("stream %llu: %s", (unsigned long long)stream->number, operation.name.c_str());
    }
    if (operation.kind == Kind::Host && !operation.fault) {
        stream->busy = true;
        host_queue.emplace_back(stream, std::move(operation));
        need_thread();
        for_thread.notify_one();
        return;
    }
    working = stream->context;
    const int code = operation.fault ? operation.fault : operation.run ? operation.run() : Success;
    working = nullptr;
    finish(stream, operation, code);
}

// A runnable stream whose work brings `target` nearer to its end.
Stream *needed_by(Stream *target) {
    Stream *at = target;
    for (int depth = 0; at && depth < 1000 && !runnable(at); ++depth) {
        if (at->busy || at->queue.empty()) {
            return nullptr;
        }
        at = stream_that_signals(at->queue.front().wait);
    }
    return at;
}

Stream *choose(Context *context, Stream *target) {
    if (settings().policy == Policy::Lazy && target) {
        return needed_by(target);
    }
    if (settings().policy == Policy::Lazy) {
        if (Stream *stream = any_of(runnable_streams(context))) {
            return stream;
        }
        for (auto &stream : context->streams) {
            if (Stream *needed = needed_by(stream.get())) {
                return needed;
            }
        }
        return nullptr;
    }
    return any_of(runnable_streams(nullptr));
}

bool any_busy() {
    for (Context *context : contexts()) {
        for (auto &stream : context->streams) {
            if (stream->busy) {
                return true;
            }
        }
    }
    return false;
}

void wait_for(Stream *waiting, Stream *on) {
    if (waiting == on || (on->queue.empty() && !on->busy)) {
        return;
    }
    auto marker = std::make_shared<Marker>();
    Operation record{Kind::Record, "implicit record", nullptr, nullptr};
    record.signal = marker;
    on->queue.push_back(std::move(record));
    Operation wait{Kind::Wait, "implicit wait", nullptr, nullptr};
    wait.wait = marker;
    waiting->queue.push_back(std::move(wait));
}

// The legacy stream waits for all blocking streams, and they for it.
int order_with_legacy(Stream *stream) {
    Context *context = stream->context;
    if (stream != context->legacy()) {
        if (stream->blocking) {
            wait_for(stream, context->legacy());
        }
        return Success;
    }
    for (auto &other : context->streams) {
        if (other->blocking && other->capture) {
            return invalidate(other.get(), CaptureImplicit, "the legacy stream was used");
        }
    }
    for (auto &other : context->streams) {
        if (other->blocking) {
            wait_for(stream, other.get());
        }
    }
    return Success;
}

void number_for_faults(Operation &operation) {
    if (operation.kind == Kind::Launch || operation.kind == Kind::Library) {
        operation.fault = fault_at("launch", ++launches_queued);
    } else if (operation.kind == Kind::Copy) {
        operation.fault = fault_at("copy", ++copies_queued);
    }
}

int add_to_capture(Stream *stream, Operation operation) {
    Capture &capture = *stream->capture;
    if (capture.invalid) {
        return CaptureInvalidated;
    }
    if (operation.kind == Kind::Memory) {
        return invalidate(stream, NotSupported, "stream-ordered memory in a capture is no part of the stub");
    }
    if (operation.wait && operation.wait->capture != capture.number) {
        return invalidate(stream, CaptureIsolation, "a wait for an event that is not of the capture");
    }
    if (operation.signal) {
        operation.signal->capture = capture.number;
    }
    operation.wait = nullptr;  // one stream: its order is enough
    operation.signal = nullptr;
    if (operation.run || operation.host) {
        capture.graph.nodes.push_back(std::move(operation));
    }
    return Success;
}

}  // namespace

std::mutex &driver_mutex() {
    static std::mutex *mutex = new std::mutex;
    return *mutex;
}

std::vector<Context *> &contexts() {
    static auto *all = new std::vector<Context *>;
    return *all;
}

double now_ms() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
}

bool in_host_function() { return inside_host_function; }

const Context *working_context() { return working; }

int error_of(const Context *context) { return process_error ? process_error : context->error; }

void start_context(Context *context) {
    context->active = true;
    context->error = 0;
    context->pending = 0;
    add_stream(context, true);
    contexts().push_back(context);
    if (settings().idle_ms > 0) {
        need_thread();
    }
}

void end_context(Context *context, std::unique_lock<std::mutex> &lock) {
    for (auto &stream : context->streams) {
        for (Operation &operation : stream->queue) {
            settle(operation);
        }
        stream->queue.clear();
    }
    const bool ended = changed.wait_for(lock, std::chrono::seconds(settings().seconds), [context] {
        return std::none_of(context->streams.begin(), context->streams.end(), [](auto &s) { return s->busy; });
    });
    if (!ended) {
        say("a context ends, and a host function of it has not ended in %ld s", settings().seconds);
        abort();  // the function may use what goes away now
    }
    context->streams.clear();
    context->per_thread.clear();
    context->active = false;
    end_allocations_of(context);
    contexts().erase(std::remove(contexts().begin(), contexts().end(), context), contexts().end());
}

Stream *add_stream(Context *context, bool blocking) {
    auto stream = std::make_unique<Stream>();
    stream->context = context;
    stream->blocking = blocking;
    stream->number = streams_made++;
    context->streams.push_back(std::move(stream));
    return context->streams.back().get();
}

Stream *stream_of(Context *context, const void *handle) {
    if (handle == nullptr || handle == (const void *)1) {
        return context->legacy();
    }
    if (handle == (const void *)2) {
        Stream *&own = context->per_thread[std::this_thread::get_id()];
        if (!own) {
            own = add_stream(context, true);
        }
        return own;
    }
    for (auto &stream : context->streams) {
        if (stream.get() == handle && !stream->destroyed) {
            return stream.get();
        }
    }
    return nullptr;
}

void forget_stream(Stream *stream) {
    stream->destroyed = true;
    sweep(stream->context);
}

Stream *stream_that_signals(const MarkerPointer &marker) {
    if (!marker) {
        return nullptr;
    }
    for (Context *context : contexts()) {
        for (auto &stream : context->streams) {
            for (const Operation &operation : stream->queue) {
                if (operation.signal == marker) {
                    return stream.get();
                }
            }
        }
    }
    return nullptr;
}

uint64_t pending_operations() {
    uint64_t sum = 0;
    for (Context *context : contexts()) {
        for (auto &stream : context->streams) {
            sum += stream->queue.size();
        }
    }
    return sum;
}

int enqueue(Stream *stream, Operation operation) {
    ++calls;
    if (stream->capture) {
        return add_to_capture(stream, std::move(operation));
    }
    if (operation.wait && operation.wait->capture) {
        say("a wait for a captured event in a stream that does not capture is no part of the stub");
        return NotSupported;
    }
    if (int code = order_with_legacy(stream)) {
        return code;
    }
    number_for_faults(operation);
    stream->queue.push_back(std::move(operation));
    if (settings().policy == Policy::Eager) {
        while (Stream *next = any_of(runnable_streams(nullptr))) {
            step(next);
        }
    } else if (settings().policy == Policy::Random) {
        for (uint64_t left = random_below(3); left > 0; --left) {
            if (Stream *next = any_of(runnable_streams(nullptr))) {
                step(next);
            }
        }
    }
    return Success;
}

int drain(Context *context, Stream *target, const std::function<bool()> &done, std::unique_lock<std::mutex> &lock) {
    ++calls;
    while (!error_of(context) && !done()) {
        if (Stream *next = choose(context, target)) {
            step(next);
            continue;
        }
        if (!any_busy()) {
            say("streams wait for an event that no stream will record");
            return LaunchTimeout;
        }
        if (changed.wait_for(lock, std::chrono::seconds(settings().seconds)) == std::cv_status::timeout) {
            say("a host function has not ended in %ld s", settings().seconds);
            return LaunchTimeout;
        }
    }
    if (int code = error_of(context)) {
        return code;
    }
    const int code = context->pending;
    context->pending = 0;
    return code;
}

int drain_stream(Stream *stream, std::unique_lock<std::mutex> &lock) {
    // What is queued now; another thread may queue more while a host function runs.
    return drain(stream->context, stream, [stream] { return stream->queue.empty() && !stream->busy; }, lock);
}

int drain_context(Context *context, std::unique_lock<std::mutex> &lock) {
    auto done = [context] {
        return std::all_of(context->streams.begin(), context->streams.end(),
                           [](auto &s) { return s->queue.empty() && !s->busy; });
    };
    return drain(context, nullptr, done, lock);
}

void poll(Context *context, Stream *target, const std::function<bool()> &done) {
    ++calls;
    uint64_t left = settings().policy == Policy::Eager ? 1000 : random_below(3);
    if (left == 0 && ++idle_polls >= 3) {
        left = 1;
    }
    while (left-- > 0 && !error_of(context) && !done()) {
        Stream *next = choose(context, target);
        if (!next) {
            return;
        }
        step(next);
        idle_polls = 0;
    }
}

int invalidate(Stream *stream, int code, const char *why) {
    if (!stream->capture->invalid) {
        say("the capture of stream %llu is invalid: %s", (unsigned long long)stream->number, why);
    }
    stream->capture->invalid = true;
    return code;
}

int refuse_in_capture(Context *context, const char *call) {
    int result = Success;
    for (auto &stream : context->streams) {
        const Capture *capture = stream->capture.get();
        if (!capture || capture->mode == 2 || (capture->mode == 1 && capture->thread != std::this_thread::get_id())) {
            continue;
        }
        result = invalidate(stream.get(), CaptureUnsupported, call);
    }
    return result;
}

// Streams, events, capture and graphs.
#include <memory>
#include <set>

#include "call.h"
#include "counts.h"
#include "../extension.h"
#include "memory.h"
#include "settings.h"

namespace {

// Never destroyed, as threads may call until the very end.
auto &events = *new std::set<Event *>;
auto &graphs = *new std::set<Graph *>;
struct Executable {
    Context *context;
    Graph graph;
};
auto &executables = *new std::set<Executable *>;
uint64_t waits_asked;
uint64_t captures_begun;

// Asking for an event of a capture that goes on is an error, and ends that capture.
int refuse_captured(Context *context, const MarkerPointer &marker, const char *call) {
    if (!marker || !marker->capture) {
        return Success;
    }
    for (auto &stream : context->streams) {
        if (stream->capture && stream->capture->number == marker->capture) {
            invalidate(stream.get(), CapturedEvent, call);
        }
    }
    return CapturedEvent;
}

int capture_error(Stream *stream, const char *call) {
    return stream->capture ? invalidate(stream, CaptureUnsupported, call) : Success;
}

}  // namespace

// ---------------------------------------------------------------- streams
API cuStreamCreateWithPriority(Stream **out, unsigned flags, int priority) {
    ENTER;
    NEED(out && flags <= 1)
    Stream *stream = add_stream(context, !(flags & 1));
    stream->flags = flags;
    stream->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    counts.streams++;
    *out = stream;
    return Success;
}

API cuStreamCreate(Stream **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

API cuStreamDestroy_v2(Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    NEED(stream != context->legacy())
    stream->capture.reset();
    forget_stream(stream);
    return Success;
}

API cuStreamSynchronize(Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    if (int code = capture_error(stream, "cuStreamSynchronize")) {
        return code;
    }
    counts.sync_stream++;
    return drain_stream(stream, call.lock);
}

API cuStreamQuery(Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    if (int code = capture_error(stream, "cuStreamQuery")) {
        return code;
    }
    counts.queries++;
    auto done = [stream] { return stream->queue.empty() && !stream->busy; };
    poll(context, stream, done);
    const int code = error_of(context);
    return code ? code : done() ? Success : NotReady;
}

API cuStreamWaitEvent(Stream *handle, Event *event, unsigned) {
    ENTER;
    FIND_STREAM(handle)
    if (!events.count(event)) {
        return InvalidHandle;
    }
    counts.waits++;
    if (++waits_asked == settings().drop_wait) {
        say("wait %llu is left out, as asked for", (unsigned long long)waits_asked);
        return Success;
    }
    if (int code = fault_at("wait", waits_asked)) {
        return code;
    }
    if (!event->marker) {
        return Success;
    }
    Operation wait{Kind::Wait, "wait", nullptr, nullptr};
    wait.wait = event->marker;
    return enqueue(stream, std::move(wait));
}

API cuLaunchHostFunc(Stream *handle, void (*function)(void *), void *data) {
    ENTER;
    FIND_STREAM(handle)
    NEED(function)
    counts.host_functions++;
    return enqueue(stream, {Kind::Host, "host function", nullptr, [function, data] { function(data); }});
}

API cuStreamGetCtx(Stream *handle, Context **out) {
    ENTER;
    FIND_STREAM(handle)
    *out = stream->context;
    return Success;
}

API cuStreamGetFlags(Stream *handle, unsigned *flags) {
    ENTER;
    FIND_STREAM(handle)
    *flags = stream->flags;
    return Success;
}

API cuStreamGetPriority(Stream *handle, int *priority) {
    ENTER;
    FIND_STREAM(handle)
    *priority = stream->priority;
    return Success;
}

API cuStreamAttachMemAsync(Stream *, uint64_t, size_t, unsigned) { return NotSupported; }

// ---------------------------------------------------------------- events
API cuEventCreate(Event **out, unsigned flags) {
    ENTER;
    NEED(out && flags <= 7)
    *out = new Event{context, !(flags & 2), nullptr};
    events.insert(*out);
    counts.events++;
    return Success;
}

API cuEventDestroy_v2(Event *event) {
    ENTER;
    if (!events.erase(event)) {
        return InvalidHandle;
    }
    delete event;
    return Success;
}

API cuEventRecord(Event *event, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    if (!events.count(event) || event->context != context) {
        return InvalidHandle;
    }
    counts.records++;
    event->marker = std::make_shared<Marker>();
    Operation record{Kind::Record, "record", nullptr, nullptr};
    record.signal = event->marker;
    return enqueue(stream, std::move(record));
}

API cuEventRecordWithFlags(Event *event, Stream *handle, unsigned) { return cuEventRecord(event, handle); }

API cuEventQuery(Event *event) {
    ENTER;
    if (!events.count(event)) {
        return InvalidHandle;
    }
    counts.queries++;
    const MarkerPointer marker = event->marker;
    if (int code = refuse_captured(context, marker, "cuEventQuery")) {
        return code;
    }
    REFUSE_IN_CAPTURE("cuEventQuery")
    if (!marker || marker->done) {
        return Success;
    }
    poll(context, stream_that_signals(marker), [marker] { return marker->done; });
    const int code = error_of(context);
    return code ? code : marker->done ? Success : NotReady;
}

API cuEventSynchronize(Event *event) {
    ENTER;
    if (!events.count(event)) {
        return InvalidHandle;
    }
    counts.sync_event++;
    const MarkerPointer marker = event->marker;
    if (int code = refuse_captured(context, marker, "cuEventSynchronize")) {
        return code;
    }
    REFUSE_IN_CAPTURE("cuEventSynchronize")
    if (!marker) {
        return Success;
    }
    return drain(context, stream_that_signals(marker), [marker] { return marker->done; }, call.lock);
}

API cuEventElapsedTime(float *ms, Event *from, Event *to) {
    ENTER;
    NEED(ms)
    if (!events.count(from) || !events.count(to) || !from->timing || !to->timing || !from->marker || !to->marker) {
        return InvalidHandle;
    }
    if (!from->marker->done || !to->marker->done) {
        return NotReady;
    }
    *ms = (float)(to->marker->time_ms - from->marker->time_ms);
    return Success;
}

API cuEventElapsedTime_v2(float *ms, Event *from, Event *to) { return cuEventElapsedTime(ms, from, to); }

API cuCtxSynchronize() {
    ENTER;
    for (auto &stream : context->streams) {
        if (stream->capture) {
            return invalidate(stream.get(), CaptureUnsupported, "cuCtxSynchronize");
        }
    }
    counts.sync_context++;
    return drain_context(context, call.lock);
}

// ---------------------------------------------------------------- capture
API cuStreamBeginCapture_v2(Stream *handle, int mode) {
    ENTER;
    FIND_STREAM(handle)
    if (stream == context->legacy()) {
        return CaptureUnsupported;
    }
    NEED(!stream->capture && mode >= 0 && mode <= 2)
    stream->capture = std::make_unique<Capture>();
    stream->capture->number = ++captures_begun;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    counts.captures++;
    return Success;
}

API cuStreamEndCapture(Stream *handle, Graph **out) {
    ENTER;
    FIND_STREAM(handle)
    NEED(out)
    *out = nullptr;
    if (!stream->capture) {
        return CaptureUnmatched;
    }
    if (stream->capture->mode != 2 && stream->capture->thread != std::this_thread::get_id()) {
        return CaptureWrongThread;
    }
    std::unique_ptr<Capture> capture = std::move(stream->capture);
    if (capture->invalid) {
        return CaptureInvalidated;
    }
    *out = new Graph(std::move(capture->graph));
    graphs.insert(*out);
    return Success;
}

API cuStreamIsCapturing(Stream *handle, int *status) {
    ENTER;
    FIND_STREAM(handle)
    NEED(status)
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    return Success;
}

API cuStreamGetCaptureInfo_v2(Stream *handle, int *status, uint64_t *id, Graph **graph, const void ***dependencies,
                              size_t *count) {
    ENTER;
    FIND_STREAM(handle)
    NEED(status)
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    if (id && stream->capture) {
        *id = stream->capture->number;
    }
    if (graph) {
        *graph = stream->capture ? &stream->capture->graph : nullptr;
    }
    if (dependencies) {
        *dependencies = nullptr;
    }
    if (count) {
        *count = 0;
    }
    return Success;
}

API cuStreamGetCaptureInfo(Stream *handle, int *status, uint64_t *id) {
    return cuStreamGetCaptureInfo_v2(handle, status, id, nullptr, nullptr, nullptr);
}

API cuThreadExchangeStreamCaptureMode(int *mode) {
    static thread_local int own = 0;
    NEED(mode)
    std::swap(own, *mode);
    return Success;
}

// ---------------------------------------------------------------- graphs
API cuGraphInstantiateWithFlags(Executable **out, Graph *graph, uint64_t flags) {
    ENTER;
    NEED(out && graphs.count(graph) && flags <= 15 && !((flags & 4) && (flags & 1)))
    *out = new Executable{context, *graph};
    executables.insert(*out);
    return Success;
}

API cuGraphInstantiate_v2(Executable **out, Graph *graph, void *, char *, size_t) {
    return cuGraphInstantiateWithFlags(out, graph, 0);
}

API cuGraphLaunch(Executable *executable, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    NEED(executables.count(executable))
    if (stream->capture) {
        return invalidate(stream, NotSupported, "a graph inside a capture is no part of the stub");
    }
    counts.graph_launches++;
    for (const Operation &node : executable->graph.nodes) {
        if (int code = enqueue(stream, node)) {
            return code;
        }
    }
    return Success;
}

API cuGraphUpload(Executable *executable, Stream *handle) {
    ENTER;
    FIND_STREAM(handle)
    NEED(executables.count(executable))
    return Success;
}

API cuGraphExecDestroy(Executable *executable) {
    ENTER;
    NEED(executables.erase(executable))
    delete executable;
    return Success;
}

API cuGraphDestroy(Graph *graph) {
    ENTER;
    NEED(graphs.erase(graph))
    delete graph;
    return Success;
}

API cuGraphGetNodes(Graph *graph, void **, size_t *count) {
    ENTER;
    NEED(graphs.count(graph) && count)
    *count = graph->nodes.size();
    return Success;
}

// ---------------------------------------------------------------- work of the library stubs
extern "C" __attribute__((visibility("default"))) int cuda_stub_enqueue(void *handle, const char *name,
                                                                          std::function<void()> work,
                                                                          std::vector<DeviceRange> ranges) {
    ENTER;
    FIND_STREAM(handle)
    counts.library_calls++;
    const std::string title = name;
    return enqueue(stream, {Kind::Library, title,
                            [title, work = std::move(work), ranges = std::move(ranges)]() -> int {
                                for (const DeviceRange &range : ranges) {
                                    const char *why = why_not_device((uint64_t)range.address, range.bytes,
                                                                     working_context());
                                    if (range.bytes && why) {
                                        say("%s: a %s of %llu bytes at %p: %s", title.c_str(),
                                            range.write ? "write" : "read", (unsigned long long)range.bytes,
                                            range.address, why);
                                        return IllegalAddress;
                                    }
                                }
                                work();
                                return Success;
                            },
                            nullptr});
}

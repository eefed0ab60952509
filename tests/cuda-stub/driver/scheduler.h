// Contexts, streams and events, and when their work is done. Work is done inside driver calls, under one lock, in an
// order that the seed draws from those that streams and events allow.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "error.h"

struct Context;

// A point in a stream that others can wait for.
struct Marker {
    bool done = false;
    double time_ms = 0;
    uint64_t capture = 0;  // the capture that it belongs to; 0: none
};
using MarkerPointer = std::shared_ptr<Marker>;

enum class Kind { Launch, Library, Copy, Memset, Memory, Host, Record, Wait };

struct Operation {
    Kind kind;
    std::string name;
    std::function<int()> run;         // gives an error code
    std::function<void()> host;       // of Kind::Host: runs on the driver's own thread
    MarkerPointer wait = nullptr;     // the operation may not begin before
    MarkerPointer signal = nullptr;   // done with the operation
    int fault = 0;                    // the code to fail with, instead of running
};

struct Graph {
    std::vector<Operation> nodes;
};

struct Capture {
    uint64_t number;
    int mode;
    std::thread::id thread;
    bool invalid = false;
    Graph graph;
};

struct Stream {
    Context *context = nullptr;
    bool blocking = true;    // waits for the legacy stream, and it for this one
    bool destroyed = false;  // goes away when its work is done
    bool busy = false;       // a host function of it runs
    int priority = 0;
    unsigned flags = 0;
    uint64_t number = 0;
    std::deque<Operation> queue;
    std::unique_ptr<Capture> capture;
};

struct Event {
    Context *context;
    bool timing;
    MarkerPointer marker;  // of the last record; null: never recorded
};

struct Context {
    int device = 0;
    bool primary = false;
    bool active = false;
    unsigned references = 0;
    unsigned flags = 0;
    int error = 0;    // sticky
    int pending = 0;  // not sticky, for the next call that waits
    std::vector<std::unique_ptr<Stream>> streams;  // the legacy stream first, then in the order of creation
    std::map<std::thread::id, Stream *> per_thread;

    Stream *legacy() { return streams.front().get(); }
};

std::mutex &driver_mutex();
std::vector<Context *> &contexts();

void start_context(Context *context);
// Drops the work and memory of the context.
void end_context(Context *context, std::unique_lock<std::mutex> &lock);
Stream *add_stream(Context *context, bool blocking);
// The stream of a handle (0 and 1: legacy, 2: of the thread), or null.
Stream *stream_of(Context *context, const void *handle);
void forget_stream(Stream *stream);

int error_of(const Context *context);

// Queues an operation, or adds it to the stream's capture.
int enqueue(Stream *stream, Operation operation);
// Does work until `done`; `target` is whose work is wanted, null for all of the context.
int drain(Context *context, Stream *target, const std::function<bool()> &done, std::unique_lock<std::mutex> &lock);
int drain_stream(Stream *stream, std::unique_lock<std::mutex> &lock);
int drain_context(Context *context, std::unique_lock<std::mutex> &lock);
// A little work towards `target`, for a caller that polls; enough calls do it all.
void poll(Context *context, Stream *target, const std::function<bool()> &done);
// The stream that will settle the marker, or null.
Stream *stream_that_signals(const MarkerPointer &marker);
uint64_t pending_operations();

// The error of a call that may not be made while a stream captures; such captures become invalid.
int refuse_in_capture(Context *context, const char *call);
int invalidate(Stream *stream, int code, const char *why);

bool in_host_function();
// The context whose work is being done, for the checks of accesses.
const Context *working_context();
double now_ms();

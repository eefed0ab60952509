#include "watch.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "error.h"
#include "settings.h"

namespace {

sigjmp_buf escape;
volatile sig_atomic_t watching;
pthread_t watched;
void *fault_address;

int timer_signal() { return SIGRTMIN + 7; }

void on_signal(int number, siginfo_t *info, void *) {
    if (watching && pthread_equal(pthread_self(), watched)) {
        fault_address = info->si_addr;
        siglongjmp(escape, number);
    }
    // Of another thread, which has nothing to do with the stub.
    signal(number, SIG_DFL);
    raise(number);
}

// A stack for the handler, as that of a fibre may be what overflowed.
void need_signal_stack() {
    static thread_local char stack[32768];
    stack_t now;
    if (sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE)) {
        stack_t own = {};
        own.ss_sp = stack;
        own.ss_size = sizeof stack;
        sigaltstack(&own, nullptr);
    }
}

struct Timer {
    timer_t id;
    bool made = false;

    ~Timer() {
        if (made) {
            timer_delete(id);
        }
    }

    void set(long seconds) {
        if (!made) {
            sigevent event = {};
            event.sigev_notify = SIGEV_THREAD_ID;
            event.sigev_signo = timer_signal();
            event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
            made = timer_create(CLOCK_MONOTONIC, &event, &id) == 0;
        }
        itimerspec after = {};
        after.it_value.tv_sec = seconds;
        if (made) {
            timer_settime(id, 0, &after, nullptr);
        }
    }
};

thread_local Timer timer;

}  // namespace

int run_watched(void (*work)(), char *reason, size_t reason_bytes) {
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, timer_signal()};
    struct sigaction before[5];
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO | SA_NODEFER;
    need_signal_stack();
    for (int i = 0; i < 5; ++i) {
        sigaction(numbers[i], &action, &before[i]);
    }
    watched = pthread_self();
    const int number = sigsetjmp(escape, 1);
    if (number == 0) {
        watching = 1;
        timer.set(settings().seconds);
        work();
    }
    timer.set(0);
    watching = 0;
    for (int i = 0; i < 5; ++i) {
        sigaction(numbers[i], &before[i], nullptr);
    }
    if (number == 0) {
        return Success;
    }
    if (number == timer_signal()) {
        snprintf(reason, reason_bytes, "the launch has not ended in CUDA_STUB_SECONDS");
        return LaunchTimeout;
    }
    if (number == SIGSEGV || number == SIGBUS) {
        snprintf(reason, reason_bytes, "an access at %p, or a stack that overflowed", fault_address);
        return IllegalAddress;
    }
    snprintf(reason, reason_bytes, number == SIGFPE ? "a division by zero" : "an illegal instruction");
    return LaunchFailed;
}

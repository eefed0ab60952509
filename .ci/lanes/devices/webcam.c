// A webcam of MJPEG at a USB port that the kernel's driver vhci-hcd makes: the other end is the kernel's own driver uvcvideo.
// Usage: webcam FILE, which holds images of JPEG of 320x240 one behind the other, sent again and again. Of ten frames three are bad: the
// first half of an image, one that the camera marks as bad, and noise.
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#define LE16(x) (x) & 255, (x) >> 8
#define LE32(x) LE16((x) & 65535), LE16((uint32_t)(x) >> 16)
enum { WIDTH = 320, HEIGHT = 240, FRAME = 333333, PAYLOAD = 1 << 18, MS = 33 };
static const uint8_t device[] = {18, 1, LE16(0x200), 0xef, 2, 1, 64, LE16(0x1d6b), LE16(0x102), LE16(1), 0, 1, 0, 1};
static uint8_t configuration[] = {
    9, 2, LE16(0), 2, 1, 0, 0x80, 50,
    8, 11, 0, 2, 14, 3, 0, 0,                                               // the two interfaces belong together
    9, 4, 0, 0, 0, 14, 1, 0, 0,                                             // control
    13, 36, 1, LE16(0x100), LE16(13 + 17 + 9), LE32(1000000), 1, 1,
    17, 36, 2, 1, LE16(0x201), 0, 0, LE16(0), LE16(0), LE16(0), 2, LE16(0), // a camera without controls
    9, 36, 3, 2, LE16(0x101), 0, 1, 0,
    9, 4, 1, 0, 1, 14, 2, 0, 0,                                             // frames, in bulk
    14, 36, 1, 1, LE16(14 + 11 + 30), 0x81, 0, 2, 0, 0, 0, 1, 0,
    11, 36, 6, 1, 1, 0, 1, 0, 0, 0, 0,                                      // MJPEG
    30, 36, 7, 1, 0, LE16(WIDTH), LE16(HEIGHT), LE32(1000000), LE32(20000000), LE32(WIDTH * HEIGHT * 2), LE32(FRAME), 1, LE32(FRAME),
    7, 5, 0x81, 2, LE16(512), 0,
};
static const uint8_t name[] = {18, 3, 't', 0, 'e', 0, 's', 0, 't', 0, ' ', 0, 'c', 0, 'a', 0, 'm', 0};
static const uint8_t languages[] = {4, 3, LE16(0x409)};
static uint8_t probe[26] = {0, 0, 1, 1, LE32(FRAME), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, LE32(WIDTH * HEIGHT * 2), LE32(PAYLOAD)};

struct head { uint32_t command, number, device, direction, endpoint; int32_t words[5]; uint8_t setup[8]; };
static int line;
static void all(int is_read, void *bytes, size_t size) {
    for (ssize_t n; size; bytes = (char *)bytes + n, size -= n)
        if ((n = is_read ? read(line, bytes, size) : write(line, bytes, size)) <= 0) exit(0);
}
static void answer(uint32_t command, uint32_t number, int status, int length, const void *data, int is_in) {
    struct head to = {htonl(command), htonl(number), 0, 0, 0, {htonl(status), htonl(length)}, {0}};
    all(0, &to, sizeof to);
    if (is_in && length) all(0, (void *)data, length);
}
static void control(struct head *from, const uint8_t *sent, int length) {
    const uint8_t *s = from->setup, *data = 0;
    int size = 0, wanted = s[6] | s[7] << 8;
    uint8_t small[2] = {0};
    if (s[0] == 0x80 && s[1] == 6) {  // descriptors
        if (s[3] == 1) data = device, size = sizeof device;
        if (s[3] == 2) data = configuration, size = sizeof configuration;
        if (s[3] == 3) data = s[2] ? name : languages, size = data[0];
        if (!data) { answer(3, from->number, -32, 0, 0, 0); return; }
    } else if ((s[0] & 0x60) == 0x20 && s[1] == 1) {  // the host says what it wants: there is one mode
        (void)sent, (void)length;
    } else if ((s[0] & 0x60) == 0x20) {
        data = probe, size = sizeof probe;
        if (s[1] == 0x85) small[0] = sizeof probe, data = small, size = 2;
        if (s[1] == 0x86) small[0] = 3, data = small, size = 1;
    } else if (s[1] == 0) data = small, size = 2;
    if (size > wanted) size = wanted;
    answer(3, from->number, 0, s[0] & 0x80 ? size : wanted, data, s[0] & 0x80);
}

static uint8_t *file, frame[PAYLOAD];
static size_t filled, at, images[1000], count;
static struct { uint32_t number; int length; } waiting[256];
static int waits, shown;
// Requests that were withdrawn and did not wait here, the last ones: vhci-hcd may withdraw a request before it sends it, and unplugs the
// camera if it answers such a request.
static uint32_t withdrawn[256];
static unsigned withdrawals;
static int was_withdrawn(uint32_t number) {
    for (unsigned i = 0; i < 256; i++)
        if (number && withdrawn[i] == number) return 1;
    return 0;
}
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void next_frame(void) {
    size_t from = images[shown % count], size = images[shown % count + 1] - from;
    int kind = shown % 10;
    if (kind == 4) size /= 2;
    frame[0] = 2;
    frame[1] = 0x82 | (shown & 1) | (kind == 7 ? 0x40 : 0);  // the end of a frame is in this payload
    memcpy(frame + 2, file + from, size);
    if (kind == 9) memset(frame + 2, 0x55, size);
    filled = size + 2, at = 0, shown++;
}
static void send_some(void) {
    while (waits && at <= filled && filled) {
        size_t left = filled - at, size = left < (size_t)waiting[0].length ? left : (size_t)waiting[0].length;
        answer(3, waiting[0].number, 0, size, frame + at, 1);
        int is_short = size < (size_t)waiting[0].length;
        memmove(waiting, waiting + 1, --waits * sizeof *waiting);
        at += size;
        if (is_short) filled = 0;  // a short transfer ends the payload
    }
}

int main(int argc, char **argv) {
    FILE *from = argc > 1 ? fopen(argv[1], "rb") : 0;
    if (!from) { fprintf(stderr, "usage: webcam FILE\n"); return 2; }
    file = malloc(16 << 20);
    size_t size = fread(file, 1, 16 << 20, from);
    for (size_t i = 0; i + 1 < size && count < 999; i++)
        if (file[i] == 0xff && file[i + 1] == 0xd9) images[++count] = i + 2;
    configuration[2] = sizeof configuration & 255, configuration[3] = sizeof configuration >> 8;
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    int attach = open("/sys/devices/platform/vhci_hcd.0/attach", O_WRONLY);
    char text[64];
    int n = snprintf(text, sizeof text, "0 %d 65538 3", ends[1]);
    if (attach < 0 || write(attach, text, n) != n) { perror("attach"); return 1; }
    close(ends[1]);
    line = ends[0];
    long due = now();
    for (;;) {
        long left = due - now();
        struct pollfd wait = {line, POLLIN, 0};
        if (poll(&wait, 1, left > 0 ? left : 0) > 0) {
            struct head from;
            static uint8_t sent[1 << 16];
            all(1, &from, sizeof from);
            uint32_t command = ntohl(from.command), endpoint = ntohl(from.endpoint), is_in = ntohl(from.direction);
            int length = ntohl(from.words[1]);
            from.number = ntohl(from.number);
            if (command == 2) {  // the request is withdrawn
                uint32_t which = ntohl(from.words[0]);
                int found = 0;
                for (int i = 0; i < waits; i++)
                    if (waiting[i].number == which) memmove(waiting + i, waiting + i + 1, (--waits - i) * sizeof *waiting), found = 1;
                if (!found) withdrawn[withdrawals++ % 256] = which;
                answer(4, from.number, found ? -104 : 0, 0, 0, 0);
                continue;
            }
            if (!is_in && length > 0) all(1, sent, length);
            if (was_withdrawn(from.number)) continue;
            if (endpoint == 0) control(&from, sent, length);
            else if (waits < 256) waiting[waits].number = from.number, waiting[waits++].length = length;
        }
        if (now() >= due) {
            due = now() + MS;
            if (!filled && waits) next_frame();
        }
        send_some();
    }
}

/* Load for NATS JetStream, as bare as its protocol allows: publish and count acknowledgements, or count what is delivered.

   jetstream produce PORT SUBJECT WINDOW SIZE SECONDS         at most WINDOW publishes unacknowledged
   jetstream latency PORT SUBJECT SIZE SECONDS PER_SECOND
   jetstream consume PORT DELIVERED_TO RECORDS SECONDS

   The same JSON as load.c. One thread, one connection; the stream and the consumer are made by somebody else. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP_S 0.5
#define STUCK_S 30.0
#define BUFFER (8 << 20)
#define STAMPS 65536 /* more than are ever unacknowledged */
#define LATENCIES_MAX 4000000

static int fd;
static char *in, *out;
static size_t in_filled, out_filled;
static int64_t acked, failed, records, record_bytes;
static double stamps[STAMPS], recording_since;
static int32_t *latencies_us;
static int64_t latencies;

static void die(const char *what) {
    fprintf(stderr, "jetstream: %s\n", what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void say(const char *text) {
    size_t size = strlen(text);
    memcpy(out + out_filled, text, size);
    out_filled += size;
}

/* What one message means: an acknowledgement (its subject ends in the number of the publish), or a record. */
static void take(const char *subject, size_t size, char *payload) {
    if (strncmp(subject, "_INBOX.load.", 12) != 0) {
        records++, record_bytes += (int64_t)size;
        return;
    }
    if (memmem(payload, size, "\"error\"", 7)) {
        if (!failed++) fprintf(stderr, "jetstream: %.*s\n", (int)size, payload);
        return;
    }
    acked++;
    double sent = stamps[atoll(subject + 12) % STAMPS];
    if (latencies_us && sent >= recording_since && latencies < LATENCIES_MAX)
        latencies_us[latencies++] = (int32_t)((now() - sent) * 1e6);
}

/* Everything whole in the buffer; the rest stays. */
static void parse(void) {
    char *at = in, *end = in + in_filled;
    for (;;) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) break;
        if (memcmp(at, "MSG ", 4) == 0) {
            char *size_at = line_end - 1;
            while (size_at[-1] != ' ') size_at--;
            size_t size = (size_t)atoll(size_at);
            char *payload = line_end + 1;
            if ((size_t)(end - payload) < size + 2) break;
            take(at + 4, size, payload);
            at = payload + size + 2;
            continue;
        }
        if (memcmp(at, "PING", 4) == 0) say("PONG\r\n");
        if (memcmp(at, "-ERR", 4) == 0) die(at);
        at = line_end + 1;
    }
    in_filled = (size_t)(end - at);
    memmove(in, at, in_filled);
}

/* Send and receive what can be, waiting at most so long. */
static void move(double wait_s) {
    struct pollfd watched = {fd, (short)(POLLIN | (out_filled ? POLLOUT : 0)), 0};
    struct timespec wait = {(time_t)wait_s, (long)((wait_s - (double)(time_t)wait_s) * 1e9)};
    if (ppoll(&watched, 1, &wait, NULL) <= 0) return;
    if (watched.revents & POLLOUT) {
        ssize_t sent = send(fd, out, out_filled, MSG_NOSIGNAL);
        if (sent > 0) out_filled -= (size_t)sent, memmove(out, out + sent, out_filled);
    }
    if (watched.revents & (POLLIN | POLLHUP)) {
        ssize_t got = recv(fd, in + in_filled, BUFFER - in_filled, 0);
        if (got == 0) die("the server closed the connection");
        if (got > 0) in_filled += (size_t)got, parse();
    }
}

static void publish(const char *subject, int64_t number, const char *payload, size_t size) {
    out_filled += (size_t)sprintf(out + out_filled, "PUB %s _INBOX.load.%" PRId64 " %zu\r\n", subject, number, size);
    memcpy(out + out_filled, payload, size);
    out_filled += size;
    say("\r\n");
    stamps[number % STAMPS] = now();
}

static void report(int64_t done, int64_t bytes, double seconds, int64_t total, int64_t total_bytes, const char *more) {
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"total_records\": %" PRId64
           ", \"total_bytes\": %" PRId64 ", \"failed\": %" PRId64 ", \"client_cpu_s\": %.3f%s}\n",
           done, bytes, seconds, total, total_bytes, failed, cpu_seconds(), more);
}

static void produce(const char *subject, int64_t window, char *payload, size_t size, double seconds) {
    int64_t sent = 0, before = 0;
    double started = now(), first_ack = 0, begin = 0, at;
    for (;;) {
        at = now();
        if (first_ack == 0 && acked > 0) first_ack = at;
        if (begin == 0 && first_ack != 0 && at >= first_ack + WARM_UP_S) begin = at, before = acked;
        if (begin != 0 && at >= begin + seconds) break;
        if (first_ack == 0 && at > started + STUCK_S) die("nothing was acknowledged");
        while (sent - acked - failed < window && out_filled + size + 256 < BUFFER) publish(subject, sent++, payload, size);
        move(0.1);
    }
    int64_t done = acked - before;
    while (acked + failed < sent && now() < at + STUCK_S) move(0.1);
    report(done, done * (int64_t)size, at - begin, acked, acked * (int64_t)size, "");
}

static int by_size(const void *one, const void *other) {
    return (*(const int32_t *)one > *(const int32_t *)other) - (*(const int32_t *)one < *(const int32_t *)other);
}

static void latency(const char *subject, char *payload, size_t size, double seconds, double per_second) {
    latencies_us = malloc(LATENCIES_MAX * sizeof *latencies_us);
    int64_t sent = 0;
    double next = now(), until;
    recording_since = next + WARM_UP_S;
    until = recording_since + seconds;
    while (next < until) {
        double left = next - now();
        if (left > 0) {
            move(left);
            continue;
        }
        publish(subject, sent++, payload, size);
        next += 1 / per_second;
        move(0);
    }
    double at = now();
    while (acked + failed < sent && now() < at + STUCK_S) move(0.1);
    qsort(latencies_us, (size_t)latencies, sizeof *latencies_us, by_size);
    char more[256];
#define AT(share) (latencies ? latencies_us[(int64_t)((double)(latencies - 1) * (share))] : 0)
    sprintf(more, ", \"p50_us\": %d, \"p99_us\": %d, \"p999_us\": %d, \"max_us\": %d", AT(0.5), AT(0.99), AT(0.999), AT(1.0));
    report(latencies, latencies * (int64_t)size, seconds, acked, acked * (int64_t)size, more);
}

static void consume(const char *delivered_to, int64_t limit, double seconds) {
    char subscribe[512];
    sprintf(subscribe, "SUB %s 2\r\n", delivered_to);
    say(subscribe);
    double started = now(), last = started;
    while (records < limit && last < started + seconds) {
        int64_t before = records;
        move(0.1);
        if (records > before) last = now();
        else if (now() > last + STUCK_S) die("nothing more arrives");
    }
    report(records, record_bytes, last - started, records, record_bytes, "");
}

int main(int argc, char **argv) {
    if (argc < 6) die("usage: see the top of jetstream.c");
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    there.sin_port = htons((uint16_t)atoi(argv[2]));
    fd = socket(AF_INET, SOCK_STREAM, 0);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (struct sockaddr *)&there, sizeof there) != 0) die("cannot connect");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    in = malloc(BUFFER), out = malloc(BUFFER);
    say("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false,\"lang\":\"c\",\"version\":\"1\"}\r\n");
    say("SUB _INBOX.load.* 1\r\n");
    const char *mode = argv[1], *subject = argv[3];
    size_t size = !strcmp(mode, "latency") ? (size_t)atoll(argv[4]) : argc > 5 ? (size_t)atoll(argv[5]) : 0;
    char *payload = malloc(size + 1);
    for (size_t at = 0; at < size; at++) payload[at] = (char)random();
    if (!strcmp(mode, "produce") && argc == 7) produce(subject, atoll(argv[4]), payload, size, atof(argv[6]));
    else if (!strcmp(mode, "latency") && argc == 7) latency(subject, payload, size, atof(argv[5]), atof(argv[6]));
    else if (!strcmp(mode, "consume")) consume(subject, atoll(argv[4]), atof(argv[5]));
    else die("usage: see the top of jetstream.c");
    return 0;
}

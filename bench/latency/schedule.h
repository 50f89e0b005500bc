/* The schedule of an open loop, and the times that are noted by it: latencies, and how late each request was sent. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define DRAIN_NS (10 * NS_PER_S) /* what is unanswered so long after the last request has been due counts as that late */

/* Requests of the phase under way are `phase_first` up to `phase_end`. */
static int64_t start_ns, phase_first, phase_end, total, warm_up;
static double interval_ns;
static uint32_t *latency_us, *late_us;
static FILE *times_file;

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static int64_t due_at_ns(int64_t number) { return start_ns + (int64_t)((double)(number - phase_first) * interval_ns); }

/* How many requests are due, of both phases; `now` may be before the first. */
static int64_t due_by(int64_t now) {
    if (now < start_ns) return phase_first;
    int64_t due = phase_first + (int64_t)((double)(now - start_ns) / interval_ns) + 1;
    return due < phase_end ? due : phase_end;
}

static void note(uint32_t *times_us, int64_t number, int64_t at) {
    if (number < warm_up) return;
    int64_t took_us = (at - due_at_ns(number)) / 1000;
    times_us[number - warm_up] = took_us < 0 ? 0 : took_us > UINT32_MAX ? UINT32_MAX : (uint32_t)took_us;
}

/* The file is there from now on: whoever waits for the schedule to start looks for it. */
static void plan(double warm_up_s, double seconds, double per_second, const char *times) {
    interval_ns = 1e9 / per_second;
    warm_up = (int64_t)(warm_up_s * per_second);
    total = warm_up + (int64_t)(seconds * per_second);
    latency_us = calloc((size_t)(total - warm_up), sizeof *latency_us);
    late_us = calloc((size_t)(total - warm_up), sizeof *late_us);
    if (!latency_us || !late_us) die("times", "no memory");
    times_file = fopen(times, "wb");
    if (!times_file) die(times, strerror(errno));
}

static void begin_phase(int64_t first, int64_t end) {
    phase_first = first, phase_end = end;
    start_ns = now_ns() + 10 * 1000 * 1000;
}

static void write_times(void) {
    size_t count = (size_t)(total - warm_up);
    if (fwrite(latency_us, sizeof *latency_us, count, times_file) != count ||
        fwrite(late_us, sizeof *late_us, count, times_file) != count || fclose(times_file) != 0)
        die("times", strerror(errno));
}

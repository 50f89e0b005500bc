/* Single writes to a disk at a fixed rate: what is due is written behind the last write and synced, all that became due during the
   last sync together.

   disk PATH SIZE WARM_UP_S SECONDS PER_SECOND TIMES

   The file is written beforehand and written over in order, as a recycled log is. TIMES and the line of JSON are as of requests.c. */

#include <fcntl.h>
#include <inttypes.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "schedule.h"

#define DISK_BYTES (64 << 20)
#define TOGETHER_MAX 1024

static void prewrite(int file) {
    static char zeroes[1 << 20];
    for (off_t at = 0; at < DISK_BYTES; at += (off_t)sizeof zeroes)
        if (pwrite(file, zeroes, sizeof zeroes, at) != (ssize_t)sizeof zeroes) die("pwrite", strerror(errno));
    if (fsync(file)) die("fsync", strerror(errno));
}

/* As run_phase; `*groups` counts syncs, `*at` is where the next write goes. What was not done in time is not done at all. */
static int64_t run_disk_phase(int file, const char *payload, size_t size, int64_t first, int64_t end, off_t *at, int64_t *groups,
                              int64_t *finished) {
    begin_phase(first, end);
    int64_t done = first, last_due = due_at_ns(end - 1), in_time = 0;
    while (done < end) {
        int64_t now = now_ns(), due = due_by(now) - done;
        if (now > last_due + DRAIN_NS) break;
        if (due == 0) {
            int64_t wake_ns = due_at_ns(done);
            struct timespec wake = {wake_ns / NS_PER_S, wake_ns % NS_PER_S};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR) {}
            continue;
        }
        if (due > TOGETHER_MAX) due = TOGETHER_MAX;
        for (int64_t number = done; number < done + due; number++) note(late_us, number, now);
        size_t bytes = size * (size_t)due;
        if (*at + (off_t)bytes > DISK_BYTES) *at = 0;
        if (pwrite(file, payload, bytes, *at) != (ssize_t)bytes) die("pwrite", strerror(errno));
        if (fdatasync(file)) die("fdatasync", strerror(errno));
        now = now_ns();
        for (int64_t number = done; number < done + due; number++) note(latency_us, number, now);
        *at += (off_t)bytes, done += due, ++*groups;
        if (now <= last_due) in_time = done - first;
    }
    *finished = done;
    for (; done < end; done++) note(latency_us, done, now_ns()), note(late_us, done, now_ns());
    return in_time;
}

static void disk(const char *path, size_t size, double warm_up_s, double seconds, double per_second, const char *times) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0) die(path, strerror(errno));
    prewrite(file);
    char *payload = malloc(size * TOGETHER_MAX);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t each = 0; each < size * TOGETHER_MAX; each++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift: does not compress */
        payload[each] = (char)state;
    }
    plan(warm_up_s, seconds, per_second, times);
    off_t at = 0;
    int64_t groups = 0, finished = 0;
    if (warm_up) run_disk_phase(file, payload, size, 0, warm_up, &at, &groups, &finished);
    groups = 0;
    double cpu_before = cpu_seconds();
    int64_t in_time = run_disk_phase(file, payload, size, warm_up, total, &at, &groups, &finished);
    write_times();
    printf("{\"requests\": %" PRId64 ", \"seconds\": %.6f, \"answered_per_second\": %.1f, \"unanswered\": %" PRId64
           ", \"failed\": 0, \"client_cpu_s\": %.6f, \"batches_per_group\": %.3f}\n",
           total - warm_up, seconds, (double)in_time / seconds, total - finished, cpu_seconds() - cpu_before,
           groups ? (double)(finished - warm_up) / (double)groups : 0.0);
}

int main(int argc, char **argv) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (argc != 7) die("usage", "see the top of disk.c");
    disk(argv[1], (size_t)atoll(argv[2]), atof(argv[3]), atof(argv[4]), atof(argv[5]), argv[6]);
    return 0;
}

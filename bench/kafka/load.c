/* Load for a Kafka address, through librdkafka and as little else as possible: produce, consume, or produce at a steady pace.

   load produce BOOTSTRAP TOPIC PARTITIONS SIZE SECONDS [name=value ...]
   load consume BOOTSTRAP TOPIC PARTITIONS RECORDS SECONDS [name=value ...]
   load latency BOOTSTRAP TOPIC PARTITIONS SIZE SECONDS PER_SECOND [name=value ...]

   What is left over are settings of librdkafka. One line of JSON says what was done. Rates are of what was acknowledged (or read)
   within the window, which begins after a warm-up; totals are of everything. librdkafka's few functions are declared here: its
   shared library comes without a header. */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

enum { PRODUCER = 0, CONSUMER = 1 };
enum { QUEUE_FULL = -184, PARTITION_EOF = -191 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_error_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, const char *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int rd_kafka_last_error(void);
const char *rd_kafka_err2str(int);

#define WARM_UP_S 0.5
#define BATCH 512       /* messages handed over at once, all to one partition */
#define READ_BATCH 8192
#define STUCK_S 30.0
#define POOL (256 << 10) /* bytes of different payloads: more than LZ4 looks back, so that nobody gains by compressing */
#define LATENCIES_MAX 4000000

static _Atomic int64_t acked, acked_bytes, failed;
static char **payloads;
static size_t payload_count;
static int first_error;

static void die(const char *what, const char *why) {
    fprintf(stderr, "load: %s: %s\n", what, why);
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

static void make_payloads(size_t size) {
    uint64_t state = 0x9e3779b97f4a7c15u;
    payload_count = POOL / (size ? size : 1) + 1;
    payloads = malloc(payload_count * sizeof *payloads);
    for (size_t each = 0; each < payload_count; each++) {
        payloads[each] = malloc(size);
        for (size_t at = 0; at < size; at++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift: does not compress */
            payloads[each][at] = (char)state;
        }
    }
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
    (void)client, (void)opaque;
    fprintf(stderr, "load: %s: %s\n", rd_kafka_err2str(error), reason);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) {
        if (!first_error) first_error = message->err;
        failed++;
        return;
    }
    atomic_fetch_add_explicit(&acked, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&acked_bytes, (int64_t)message->len, memory_order_relaxed);
}

static int32_t *latencies_us;
static _Atomic int64_t latencies;
static double recording_since;

static void on_timed_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    double sent = *(double *)message->opaque, took_us = (now() - sent) * 1e6;
    free(message->opaque);
    on_delivery(client, message, opaque);
    if (!message->err && sent >= recording_since && latencies < LATENCIES_MAX) latencies_us[latencies++] = (int32_t)took_us;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != 0) die(name, why);
}

static rd_kafka_t *client_of(int kind, rd_kafka_conf_t *conf, int settings, char **setting) {
    for (; settings > 0; settings--, setting++) {
        char *value = strchr(*setting, '=');
        if (!value) die(*setting, "not name=value");
        *value = 0;
        set(conf, *setting, value + 1);
    }
    char why[512];
    rd_kafka_t *client = rd_kafka_new(kind, conf, why, sizeof why);
    if (!client) die("librdkafka", why);
    return client;
}

static rd_kafka_conf_t *producer_conf(const char *bootstrap) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "acks", "all");
    set(conf, "message.timeout.ms", "60000");
    set(conf, "socket.nagle.disable", "true");
    set(conf, "topic.metadata.refresh.fast.interval.ms", "100");
    rd_kafka_conf_set_error_cb(conf, on_error);
    return conf;
}

static int produce(const char *bootstrap, const char *topic_name, int partitions, size_t size, double seconds, int settings,
                   char **setting) {
    rd_kafka_conf_t *conf = producer_conf(bootstrap);
    set(conf, "linger.ms", "5");
    set(conf, "batch.size", "1000000");
    set(conf, "batch.num.messages", "100000");
    set(conf, "queue.buffering.max.messages", "500000");
    set(conf, "queue.buffering.max.kbytes", "131072");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = client_of(PRODUCER, conf, settings, setting);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, topic_name, NULL);
    make_payloads(size);
    rd_kafka_message_t batch[BATCH];
    size_t next_payload = 0;
    double begin = 0, end = 0, started = now(), first_ack = 0;
    int64_t records = 0, bytes = 0;
    for (int32_t partition = 0;; partition = (partition + 1) % partitions) {
        double at = now();
        if (first_ack == 0 && acked > 0) first_ack = at;
        if (begin == 0 && first_ack != 0 && at >= first_ack + WARM_UP_S) begin = at, records = acked, bytes = acked_bytes;
        if (begin != 0 && at >= begin + seconds && acked > records) { /* a busy machine may need longer for the first */
            end = at, records = acked - records, bytes = acked_bytes - bytes;
            break;
        }
        if ((first_ack == 0 && at > started + STUCK_S) || (begin != 0 && at > begin + seconds + STUCK_S))
            die("produce", "nothing was acknowledged");
        memset(batch, 0, sizeof batch);
        for (int each = 0; each < BATCH; each++) {
            batch[each].payload = payloads[next_payload], batch[each].len = size;
            if (++next_payload == payload_count) next_payload = 0;
        }
        int sent = 0;
        while (sent < BATCH) {
            sent += rd_kafka_produce_batch(topic, partition, 0, batch + sent, BATCH - sent);
            if (sent == BATCH) break;
            if (batch[sent].err != QUEUE_FULL) die("produce", rd_kafka_err2str(batch[sent].err));
            rd_kafka_poll(client, 1);
            if (begin != 0 && now() >= begin + seconds) break;
        }
        rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, 60000);
    if (failed) fprintf(stderr, "load: %s\n", rd_kafka_err2str(first_error));
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"total_records\": %" PRId64
           ", \"total_bytes\": %" PRId64 ", \"failed\": %" PRId64 ", \"client_cpu_s\": %.3f}\n",
           records, bytes, end - begin, acked, acked_bytes, failed, cpu_seconds());
    return 0;
}

static int consume(const char *bootstrap, const char *topic_name, int partitions, int64_t limit, double seconds, int settings,
                   char **setting) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    set(conf, "socket.nagle.disable", "true");
    set(conf, "fetch.queue.backoff.ms", "5");
    set(conf, "fetch.wait.max.ms", "100");
    set(conf, "fetch.message.max.bytes", "4194304");
    set(conf, "fetch.max.bytes", "33554432");
    set(conf, "receive.message.max.bytes", "67108864");
    set(conf, "queued.min.messages", "1000000");
    set(conf, "queued.max.messages.kbytes", "131072");
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_t *client = client_of(CONSUMER, conf, settings, setting);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, topic_name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    double started = now();
    for (int32_t each = 0; each < partitions; each++)
        if (rd_kafka_consume_start_queue(topic, each, 0, queue) != 0) die("consume", rd_kafka_err2str(rd_kafka_last_error()));
    static rd_kafka_message_t *got[READ_BATCH];
    double first = 0, last = started;
    int64_t records = 0, bytes = 0;
    while (records < limit && (first == 0 || last < first + seconds)) {
        ssize_t count = rd_kafka_consume_batch_queue(queue, 100, got, READ_BATCH);
        double at = now();
        if (count <= 0) {
            if (at > last + STUCK_S) die("consume", "nothing more arrives");
            continue;
        }
        if (first == 0) first = at;
        last = at;
        for (ssize_t each = 0; each < count; each++) {
            if (got[each]->err == 0) records++, bytes += (int64_t)got[each]->len;
            else if (got[each]->err != PARTITION_EOF) first_error = got[each]->err, failed++;
            rd_kafka_message_destroy(got[each]);
        }
    }
    if (failed) fprintf(stderr, "load: %s\n", rd_kafka_err2str(first_error));
    /* From the first request to the last record: what was fetched ahead of the first call would look free otherwise. */
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"total_records\": %" PRId64
           ", \"total_bytes\": %" PRId64 ", \"failed\": %" PRId64 ", \"client_cpu_s\": %.3f}\n",
           records, bytes, last - started, records, bytes, failed, cpu_seconds());
    fflush(stdout);
    _Exit(0); /* without asking a thousand prefetched messages to leave one by one */
}

static void *poll_for_ever(void *client) {
    for (;;) rd_kafka_poll(client, 100);
    return NULL;
}

static int by_size(const void *one, const void *other) {
    return (*(const int32_t *)one > *(const int32_t *)other) - (*(const int32_t *)one < *(const int32_t *)other);
}

static int latency(const char *bootstrap, const char *topic_name, int partitions, size_t size, double seconds, double per_second,
                   int settings, char **setting) {
    rd_kafka_conf_t *conf = producer_conf(bootstrap);
    set(conf, "linger.ms", "0");
    rd_kafka_conf_set_dr_msg_cb(conf, on_timed_delivery);
    rd_kafka_t *client = client_of(PRODUCER, conf, settings, setting);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, topic_name, NULL);
    make_payloads(size);
    latencies_us = malloc(LATENCIES_MAX * sizeof *latencies_us);
    recording_since = now() + WARM_UP_S + 0.5;
    pthread_t polling;
    pthread_create(&polling, NULL, poll_for_ever, client);
    double next = now(), until = recording_since + seconds;
    for (int64_t sent = 0; next < until; sent++, next += 1 / per_second) {
        struct timespec wake = {(time_t)next, (long)((next - (double)(time_t)next) * 1e9)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR) {}
        double *stamp = malloc(sizeof *stamp);
        *stamp = next >= recording_since ? now() : 0; /* by when it was due: one that is sent late counts where it belongs */
        if (rd_kafka_produce(topic, (int32_t)(sent % partitions), 0, payloads[(size_t)sent % payload_count], size, NULL, 0, stamp) != 0)
            die("latency", rd_kafka_err2str(rd_kafka_last_error()));
    }
    rd_kafka_flush(client, 60000);
    if (failed) fprintf(stderr, "load: %s\n", rd_kafka_err2str(first_error));
    qsort(latencies_us, (size_t)latencies, sizeof *latencies_us, by_size);
#define AT(share) (latencies ? latencies_us[(int64_t)((double)(latencies - 1) * (share))] : 0)
    printf("{\"records\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"total_records\": %" PRId64
           ", \"total_bytes\": %" PRId64 ", \"failed\": %" PRId64 ", \"client_cpu_s\": %.3f, \"p50_us\": %d, \"p99_us\": %d, "
           "\"p999_us\": %d, \"max_us\": %d}\n",
           latencies, latencies * (int64_t)size, seconds, acked, acked_bytes, failed, cpu_seconds(), AT(0.5), AT(0.99), AT(0.999),
           AT(1.0));
    fflush(stdout);
    _Exit(0); /* the polling thread never ends */
}

int main(int argc, char **argv) {
    if (argc >= 7) {
        const char *mode = argv[1], *bootstrap = argv[2], *topic = argv[3];
        int partitions = atoi(argv[4]);
        if (!strcmp(mode, "produce"))
            return produce(bootstrap, topic, partitions, (size_t)atoll(argv[5]), atof(argv[6]), argc - 7, argv + 7);
        if (!strcmp(mode, "consume"))
            return consume(bootstrap, topic, partitions, atoll(argv[5]), atof(argv[6]), argc - 7, argv + 7);
        if (!strcmp(mode, "latency") && argc >= 8)
            return latency(bootstrap, topic, partitions, (size_t)atoll(argv[5]), atof(argv[6]), atof(argv[7]), argc - 8, argv + 8);
    }
    die("usage", "see the top of load.c");
}

/* The ceiling of loopback: a "broker" that reads what it is sent, throws it away and says that all is well.

   discard [FILE]

   With FILE it writes what it is sent there before it answers, and syncs once for all that has come meanwhile: what a server costs that
   does nothing but make records durable. The file is written beforehand and written over in order, as a recycled log is.

   Prints its port, serves until it is killed. It knows just what librdkafka needs in order to produce and to fetch: ApiVersions,
   Metadata, InitProducerId, Produce 3 and Fetch 4, one thread, no checks. A topic named pN-... has N partitions. The first large
   batch of every partition of the topic produced to last is kept, and given out for ever to whoever fetches: only its first eight
   bytes, the offset, change, and they are outside the checksum. */

#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define PARTITIONS_MAX 64
#define BUFFER (8 << 20)
#define ANSWER_MAX (1 << 16)
#define PIECES_MAX 1000
#define DISK_BYTES (64 << 20)
#define ROUND_MAX (16 << 20)   /* bytes of requests that are synced together */
#define LATER_MAX (1 << 16)    /* answers to them */
#define KEPT_MIN 4096 /* smaller batches than this are of a slow start */

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, API_VERSIONS = 18, INIT_PRODUCER_ID = 22 };
enum { UNSUPPORTED_VERSION = 35 };

typedef struct {
    int fd;
    char *bytes;
    size_t filled;
} connection_t;

typedef struct {
    char *bytes;
    int32_t size, records;
    int64_t produced;
} partition_t;

static int port;
static int64_t producer_ids;
static char kept_topic[256];
static partition_t kept[PARTITIONS_MAX];

/* Of the file: what is written next, and the answers that wait for it. */
static int file = -1;
static off_t file_at;
static char *round_bytes, *round_answers;
static size_t round_filled, answers_filled;
static struct { int fd; size_t size; } later[LATER_MAX];
static int later_count;

/* Reading and writing: a cursor over big-endian fields. */
static int16_t get16(char **at) { uint16_t v; memcpy(&v, *at, 2); *at += 2; return (int16_t)be16toh(v); }
static int32_t get32(char **at) { uint32_t v; memcpy(&v, *at, 4); *at += 4; return (int32_t)be32toh(v); }
static int64_t get64(char **at) { uint64_t v; memcpy(&v, *at, 8); *at += 8; return (int64_t)be64toh(v); }
static void put8(char **at, int v) { *(*at)++ = (char)v; }
static void put16(char **at, int v) { uint16_t b = htobe16((uint16_t)v); memcpy(*at, &b, 2); *at += 2; }
static void put32(char **at, int64_t v) { uint32_t b = htobe32((uint32_t)v); memcpy(*at, &b, 4); *at += 4; }
static void put64(char **at, int64_t v) { uint64_t b = htobe64((uint64_t)v); memcpy(*at, &b, 8); *at += 8; }

static int get_text(char **at, char *text) { /* at most 255 bytes; null is empty */
    int size = get16(at);
    if (size < 0) size = 0;
    if (size > 255) exit(2);
    memcpy(text, *at, (size_t)size);
    text[size] = 0;
    *at += size;
    return size;
}

static void put_text(char **at, const char *text) {
    int size = (int)strlen(text);
    put16(at, size);
    memcpy(*at, text, (size_t)size);
    *at += size;
}

static void send_all(int fd, struct iovec *pieces, int count) {
    while (count > 0) {
        ssize_t sent = writev(fd, pieces, count);
        if (sent < 0) return; /* the reader is gone; its poll will say so */
        while (count > 0 && (size_t)sent >= pieces->iov_len) sent -= (ssize_t)pieces->iov_len, pieces++, count--;
        if (count > 0) pieces->iov_base = (char *)pieces->iov_base + sent, pieces->iov_len -= (size_t)sent;
    }
}

static void api_versions(char **out, int version) {
    static const int16_t known[][3] = {
        {PRODUCE, 0, 3}, {FETCH, 0, 4}, {METADATA, 0, 1}, {API_VERSIONS, 0, 0}, {INIT_PRODUCER_ID, 0, 0}};
    put16(out, version == 0 ? 0 : UNSUPPORTED_VERSION); /* answered in version 0, and asked again in it */
    put32(out, 5);
    for (int each = 0; each < 5; each++)
        for (int field = 0; field < 3; field++) put16(out, known[each][field]);
}

static void metadata(char **in, char **out) {
    put32(out, 1);
    put32(out, 1), put_text(out, "127.0.0.1"), put32(out, port), put16(out, -1);
    put32(out, 1);
    int32_t topics = get32(in);
    if (topics < 0) topics = 0;
    put32(out, topics);
    for (; topics > 0; topics--) {
        char name[256];
        get_text(in, name);
        int partitions = atoi(name + 1);
        if (partitions < 1 || partitions > PARTITIONS_MAX) partitions = 1;
        put16(out, 0), put_text(out, name), put8(out, 0), put32(out, partitions);
        for (int each = 0; each < partitions; each++) {
            put16(out, 0), put32(out, each), put32(out, 1);
            put32(out, 1), put32(out, 1), put32(out, 1), put32(out, 1);
        }
    }
}

static void keep(const char *topic, int32_t partition, const char *batch, int32_t size) {
    if (strcmp(topic, kept_topic) != 0) {
        strcpy(kept_topic, topic);
        for (int each = 0; each < PARTITIONS_MAX; each++) {
            free(kept[each].bytes);
            kept[each] = (partition_t){0};
        }
    }
    char *at = (char *)batch + 23; /* lastOffsetDelta */
    int32_t records = get32(&at) + 1;
    if (kept[partition].size < KEPT_MIN) {
        kept[partition].bytes = realloc(kept[partition].bytes, (size_t)size);
        memcpy(kept[partition].bytes, batch, (size_t)size);
        kept[partition].size = size, kept[partition].records = records;
    }
    kept[partition].produced += records;
}

static int produce(char **in, char **out) {
    char text[256];
    get_text(in, text);
    int acks = get16(in);
    get32(in);
    int32_t topics = get32(in);
    put32(out, topics);
    for (; topics > 0; topics--) {
        get_text(in, text);
        int32_t partitions = get32(in);
        put_text(out, text), put32(out, partitions);
        for (; partitions > 0; partitions--) {
            int32_t partition = get32(in), size = get32(in);
            if (partition < 0 || partition >= PARTITIONS_MAX || size < 61) exit(2);
            int64_t offset = strcmp(text, kept_topic) == 0 ? kept[partition].produced : 0;
            keep(text, partition, *in, size);
            if (file >= 0) memcpy(round_bytes + round_filled, *in, (size_t)size), round_filled += (size_t)size;
            *in += size;
            put32(out, partition), put16(out, 0), put64(out, offset), put64(out, -1);
        }
    }
    put32(out, 0);
    return acks;
}

/* Copies of the kept batch, each with its own eight bytes of offset, gathered from where they are. */
static void fetch(int fd, char **in, char *head, char **out) {
    static char offsets[PIECES_MAX * 8];
    struct iovec pieces[PIECES_MAX + 2];
    int count = 0;
    char *offset_at = offsets, *begin = head, *text_begin = *out;
    int64_t total = 0;
    get32(in), get32(in), get32(in);
    int64_t left = get32(in);
    *in += 1;
    int32_t topics = get32(in);
    put32(out, 0), put32(out, topics);
    for (; topics > 0; topics--) {
        char text[256];
        get_text(in, text);
        int32_t partitions = get32(in);
        put_text(out, text), put32(out, partitions);
        for (; partitions > 0; partitions--) {
            int32_t index = get32(in);
            int64_t offset = get64(in);
            int64_t room = get32(in);
            partition_t *from = &kept[index % PARTITIONS_MAX];
            int64_t copies = from->size ? (room < left ? room : left) / from->size : 0;
            if (from->size && copies == 0 && left > 0) copies = 1;
            while (copies > 0 && count + 2 * copies + 2 > PIECES_MAX) copies--;
            put32(out, index), put16(out, 0), put64(out, INT64_MAX / 2), put64(out, INT64_MAX / 2), put32(out, 0);
            put32(out, copies * from->size);
            left -= copies * from->size, total += copies * from->size;
            if (copies == 0) continue;
            pieces[count++] = (struct iovec){begin, (size_t)(*out - begin)};
            begin = *out;
            for (; copies > 0; copies--, offset += from->records) {
                char *written = offset_at;
                put64(&offset_at, offset);
                pieces[count++] = (struct iovec){written, 8};
                pieces[count++] = (struct iovec){from->bytes + 8, (size_t)from->size - 8};
            }
        }
    }
    if (*out > begin) pieces[count++] = (struct iovec){begin, (size_t)(*out - begin)};
    char *size_at = head;
    put32(&size_at, (*out - text_begin) + 4 + total);
    send_all(fd, pieces, count);
}

static void sync_round(void) {
    if (round_filled) {
        if (file_at + (off_t)round_filled > DISK_BYTES) file_at = 0;
        if (pwrite(file, round_bytes, round_filled, file_at) != (ssize_t)round_filled || fdatasync(file)) exit(3);
        file_at += (off_t)round_filled;
    }
    char *at = round_answers;
    for (int each = 0; each < later_count; each++) {
        struct iovec whole = {at, later[each].size};
        send_all(later[each].fd, &whole, 1);
        at += later[each].size;
    }
    round_filled = answers_filled = 0, later_count = 0;
}

static void answer_later(int fd, const char *from, size_t size) {
    memcpy(round_answers + answers_filled, from, size);
    answers_filled += size;
    if (later_count && later[later_count - 1].fd == fd) later[later_count - 1].size += size;
    else later[later_count].fd = fd, later[later_count++].size = size;
    if (later_count == LATER_MAX || round_filled > ROUND_MAX / 2 || answers_filled > ROUND_MAX - ANSWER_MAX) sync_round();
}

static void answer(int fd, char *in) {
    static char room[ANSWER_MAX];
    char client[256], *head = room, *out = room + 8;
    int api = get16(&in), version = get16(&in);
    int32_t correlation = get32(&in);
    get_text(&in, client);
    char *correlation_at = room + 4;
    put32(&correlation_at, correlation);
    if (api == FETCH) {
        fetch(fd, &in, head, &out);
        return;
    }
    if (api == API_VERSIONS) api_versions(&out, version);
    else if (api == METADATA) metadata(&in, &out);
    else if (api == INIT_PRODUCER_ID) put32(&out, 0), put16(&out, 0), put64(&out, ++producer_ids), put16(&out, 0);
    else if (api != PRODUCE) exit(2);
    else if (produce(&in, &out) == 0) return;
    put32(&head, out - room - 4);
    struct iovec whole = {room, (size_t)(out - room)};
    if (api == PRODUCE && file >= 0) answer_later(fd, room, whole.iov_len);
    else send_all(fd, &whole, 1);
}

/* 0 when the other side is gone. */
static int serve(connection_t *from) {
    ssize_t got = recv(from->fd, from->bytes + from->filled, BUFFER - from->filled, 0);
    if (got <= 0) return 0;
    from->filled += (size_t)got;
    char *at = from->bytes, *end = from->bytes + from->filled;
    while (end - at >= 4) {
        char *body = at;
        int32_t size = get32(&body);
        if (size < 8 || size > BUFFER - 4) return 0;
        if (end - body < size) break;
        answer(from->fd, body);
        at = body + size;
    }
    from->filled = (size_t)(end - at);
    memmove(from->bytes, at, from->filled);
    return 1;
}

static void open_file(const char *path) {
    round_bytes = calloc(1, ROUND_MAX), round_answers = malloc(ROUND_MAX);
    file = open(path, O_RDWR | O_CREAT, 0600);
    for (off_t at = 0; file >= 0 && at < DISK_BYTES; at += ROUND_MAX)
        if (pwrite(file, round_bytes, ROUND_MAX, at) != ROUND_MAX) exit(3);
    if (file < 0 || fsync(file)) exit(3);
}

int main(int argc, char **argv) {
    if (argc == 2) open_file(argv[1]);
    signal(SIGPIPE, SIG_IGN); /* a consumer that has enough leaves in the middle of an answer */
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    if (bind(listener, (struct sockaddr *)&here, size) || listen(listener, 64)) return perror("discard"), 1;
    getsockname(listener, (struct sockaddr *)&here, &size);
    port = ntohs(here.sin_port);
    printf("127.0.0.1:%d\n", port);
    fflush(stdout);
    static connection_t open[CONNECTIONS_MAX];
    struct pollfd watched[CONNECTIONS_MAX + 1] = {{listener, POLLIN, 0}};
    for (int count = 0;;) {
        poll(watched, (nfds_t)count + 1, -1);
        for (int each = count - 1; each >= 0; each--) {
            if (!watched[each + 1].revents || serve(&open[each])) continue;
            close(open[each].fd), free(open[each].bytes);
            open[each] = open[--count], watched[each + 1] = watched[count + 1];
        }
        if (later_count) sync_round();
        if (watched[0].revents & POLLIN && count < CONNECTIONS_MAX) {
            int fd = accept(listener, NULL, NULL);
            if (fd < 0) continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            open[count] = (connection_t){fd, malloc(BUFFER), 0};
            watched[++count] = (struct pollfd){fd, POLLIN, 0};
        }
    }
}

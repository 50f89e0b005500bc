/* Single requests to a server, at a fixed rate or as fast as answers come.

   requests open PROTOCOL PORT CONNECTIONS FRAMES WARM_UP_S SECONDS PER_SECOND TIMES < frames
   requests closed PROTOCOL PORT CONNECTIONS FRAMES WARM_UP_S SECONDS DEPTH < frames

   open: request i is due at start + i / PER_SECOND whatever came before, on connection i % CONNECTIONS, and its latency counts from
   there. It is never skipped: a server that stalls delays what was due meanwhile, and all of that is in the figures. The warm-up has
   the same rate; the schedule that counts starts when all of it is answered, so that what a cold server put off is not in it.
   closed: DEPTH requests are unanswered on each connection, always.

   PROTOCOL is kafka, resp or nats. Frames come ready from stdin, each after its size in 4 bytes of this machine's order: for every
   connection one that greets (it may be empty), then FRAMES that are sent in turn. Answers come in the order of the requests.
   TIMES gets two arrays of uint32 in the order of the schedule, without the warm-up: latencies, and how late each was sent, in µs.
   One line of JSON says the rest. One thread; it sleeps between events. */

#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "schedule.h"

#define CONNECTIONS_MAX 1024
#define BUFFER (256 << 10)
#define TOGETHER_MAX 32 /* frames of one send, when several are due */
#define STUCK_NS (30 * NS_PER_S)

typedef enum { KAFKA, RESP, NATS } protocol_t;

typedef struct {
    int fd;
    struct iovec greeting, *frames;
    int64_t due, sent, answered; /* requests */
    size_t partial;              /* bytes of frame `sent` that are on their way */
    int pongs;
    char *in;
    size_t filled;
} connection_t;

static protocol_t protocol;
static connection_t connections[CONNECTIONS_MAX];
static int connection_count, frame_count, epoll;
static int64_t answered, failed;

static struct iovec read_frame(void) {
    uint32_t size;
    if (fread(&size, sizeof size, 1, stdin) != 1) die("stdin", "too few frames");
    struct iovec frame = {malloc(size ? size : 1), size};
    if (size && fread(frame.iov_base, size, 1, stdin) != 1) die("stdin", "a frame is cut");
    return frame;
}

static void connect_all(int port) {
    epoll = epoll_create1(0);
    struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int each = 0; each < connection_count; each++) {
        connection_t *made = &connections[each];
        made->greeting = read_frame();
        made->frames = malloc((size_t)frame_count * sizeof *made->frames);
        for (int frame = 0; frame < frame_count; frame++) made->frames[frame] = read_frame();
        made->in = malloc(BUFFER);
        made->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(made->fd, (struct sockaddr *)&there, sizeof there)) die("connect", strerror(errno));
        int yes = 1;
        setsockopt(made->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (send(made->fd, made->greeting.iov_base, made->greeting.iov_len, MSG_NOSIGNAL) < 0) die("greet", strerror(errno));
        fcntl(made->fd, F_SETFL, O_NONBLOCK);
        /* Both directions, by edges: one registration for ever, and no event for what is merely still writable. */
        struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = made}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, made->fd, &event);
    }
}

static void send_due(connection_t *to, int64_t now) {
    while (to->sent < to->due || to->pongs) {
        struct iovec pieces[TOGETHER_MAX];
        int count = 0;
        if (to->pongs && to->partial == 0) {
            if (send(to->fd, "PONG\r\n", 6, MSG_NOSIGNAL) != 6) return; /* six bytes go whole or not at all, practically */
            to->pongs--;
            continue;
        }
        for (int64_t number = to->sent; number < to->due && count < TOGETHER_MAX; number++)
            pieces[count++] = to->frames[number % frame_count];
        if (count == 0) return;
        pieces[0].iov_base = (char *)pieces[0].iov_base + to->partial, pieces[0].iov_len -= to->partial;
        ssize_t moved = writev(to->fd, pieces, count);
        if (moved < 0) {
            if (errno == EAGAIN) return; /* an edge says when there is room */
            die("send", strerror(errno));
        }
        for (int each = 0; each < count && moved > 0; each++) {
            if ((size_t)moved < pieces[each].iov_len) {
                to->partial = (each ? 0 : to->partial) + (size_t)moved;
                break;
            }
            moved -= (ssize_t)pieces[each].iov_len, to->partial = 0;
            if (late_us) note(late_us, (to - connections) + to->sent * connection_count, now);
            to->sent++;
        }
    }
}

static int32_t get32(const char *at) { uint32_t v; memcpy(&v, at, 4); return (int32_t)be32toh(v); }
static int16_t get16(const char *at) { uint16_t v; memcpy(&v, at, 2); return (int16_t)be16toh(v); }

static void refuse(const char *at, size_t size) {
    if (failed++) return;
    fprintf(stderr, "requests: refused: ");
    for (size_t each = 0; each < size && each < 200; each++) fputc(at[each] < ' ' ? '.' : at[each], stderr);
    fputc('\n', stderr);
}

/* Each of these: the bytes of the next message, 0 when it is not whole; `*is_answer` when it answers a request. */
static size_t kafka_message(connection_t *from, const char *at, size_t left, int *is_answer) {
    if (left < 4 || left < 4 + (size_t)get32(at)) return 0;
    size_t size = 4 + (size_t)get32(at);
    size_t error_at = 12 + 2 + (size_t)get16(at + 12) + 8; /* one topic, one partition */
    if (get32(at + 4) != (int32_t)(from->answered % frame_count)) die("kafka", "an answer to another request");
    if (size < error_at + 2) die("kafka", "a short answer");
    if (get16(at + error_at) != 0) {
        if (!failed++) fprintf(stderr, "requests: refused: error code %d\n", get16(at + error_at));
    }
    *is_answer = 1;
    return size;
}

static size_t resp_message(connection_t *from, const char *at, size_t left, int *is_answer) {
    (void)from;
    const char *line_end = memchr(at, '\n', left);
    if (!line_end) return 0;
    size_t size = (size_t)(line_end + 1 - at);
    if (*at == '-') refuse(at, size);
    else if (*at == '$') size += (size_t)atoll(at + 1) + 2;
    if (left < size) return 0;
    *is_answer = 1;
    return size;
}

static size_t nats_message(connection_t *from, const char *at, size_t left, int *is_answer) {
    const char *line_end = memchr(at, '\n', left);
    if (!line_end) return 0;
    size_t size = (size_t)(line_end + 1 - at);
    if (memcmp(at, "MSG ", 4) == 0) {
        const char *count_at = line_end - 1;
        while (count_at[-1] != ' ') count_at--;
        size_t payload = (size_t)atoll(count_at);
        if (left < size + payload + 2) return 0;
        if (memmem(at + size, payload, "\"error\"", 7)) refuse(at + size, payload);
        *is_answer = 1;
        return size + payload + 2;
    }
    if (memcmp(at, "PING", 4) == 0) from->pongs++;
    if (memcmp(at, "-ERR", 4) == 0) refuse(at, size);
    return size;
}

static void receive(connection_t *from) {
    for (;;) {
        size_t room = BUFFER - from->filled;
        ssize_t got = recv(from->fd, from->in + from->filled, room, 0);
        if (got == 0) die("receive", "the server closed the connection");
        if (got < 0) {
            if (errno == EAGAIN) return;
            die("receive", strerror(errno));
        }
        int64_t now = now_ns();
        from->filled += (size_t)got;
        size_t at = 0;
        for (;;) {
            int is_answer = 0;
            const char *next = from->in + at;
            size_t left = from->filled - at;
            size_t size = left == 0            ? 0
                          : protocol == KAFKA ? kafka_message(from, next, left, &is_answer)
                          : protocol == RESP  ? resp_message(from, next, left, &is_answer)
                                              : nats_message(from, next, left, &is_answer);
            if (size == 0) break;
            at += size;
            if (!is_answer) continue;
            if (latency_us) note(latency_us, (from - connections) + from->answered * connection_count, now);
            from->answered++, answered++;
        }
        from->filled -= at;
        memmove(from->in, from->in + at, from->filled);
        if ((size_t)got < room) return; /* a short read has emptied the socket */
    }
}

/* Receive what has come, waiting for it until `until_ns` at most. Whoever can be sent to is in `writable`. */
static int wait_for_events(int64_t until_ns, connection_t **writable) {
    struct epoll_event events[CONNECTIONS_MAX];
    int64_t wait_ns = until_ns - now_ns();
    if (wait_ns < 0) wait_ns = 0;
    struct timespec wait = {wait_ns / NS_PER_S, wait_ns % NS_PER_S};
    int count = (int)syscall(SYS_epoll_pwait2, epoll, events, CONNECTIONS_MAX, &wait, NULL, 0);
    if (count < 0 && errno != EINTR) die("epoll_pwait2", strerror(errno));
    for (int each = 0; each < count; each++) {
        connection_t *with = events[each].data.ptr;
        if (events[each].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(with);
        writable[each] = with;
    }
    return count < 0 ? 0 : count;
}

/* All requests of a phase, until they are answered or late beyond measure. Answers that came before the last was due are returned. */
static int64_t run_phase(int64_t first, int64_t end) {
    connection_t *writable[CONNECTIONS_MAX];
    begin_phase(first, end);
    int64_t next = first, last_due = due_at_ns(end - 1), before = answered, in_time = 0;
    while (answered < end) {
        int64_t now = now_ns(), due = due_by(now);
        for (; next < due; next++) {
            connection_t *to = &connections[next % connection_count];
            to->due++;
            if (next + connection_count >= due) send_due(to, now); /* its last for now: all that it is due goes together */
        }
        if (now <= last_due) in_time = answered - before;
        if (now > last_due + DRAIN_NS) break;
        int count = wait_for_events(next < end ? due_at_ns(next) : last_due + DRAIN_NS + 1, writable);
        for (int each = 0; each < count; each++) send_due(writable[each], now_ns());
    }
    return in_time;
}

/* Counted and noted as they are by now: without the warm-up, as all that is counted. */
static int64_t note_unanswered(int64_t now) {
    int64_t count = 0;
    for (int each = 0; each < connection_count; each++) {
        connection_t *with = &connections[each];
        for (int64_t number = each + with->answered * connection_count; number < total; number += connection_count)
            note(latency_us, number, now), count += number >= warm_up;
        for (int64_t number = each + with->sent * connection_count; number < total; number += connection_count)
            note(late_us, number, now);
    }
    return count;
}

static void open_loop(double warm_up_s, double seconds, double per_second, const char *times) {
    plan(warm_up_s, seconds, per_second, times);
    if (warm_up) run_phase(0, warm_up);
    double cpu_before = cpu_seconds();
    int64_t in_time = run_phase(warm_up, total);
    double cpu_s = cpu_seconds() - cpu_before;
    int64_t unanswered = note_unanswered(now_ns());
    write_times();
    printf("{\"requests\": %" PRId64 ", \"seconds\": %.6f, \"answered_per_second\": %.1f, \"unanswered\": %" PRId64
           ", \"failed\": %" PRId64 ", \"client_cpu_s\": %.6f, \"all_answered\": %" PRId64 "}\n",
           total - warm_up, seconds, (double)in_time / seconds, unanswered, failed, cpu_s, answered);
}

static void closed_loop(double warm_up_s, double seconds, int depth) {
    connection_t *writable[CONNECTIONS_MAX];
    for (int each = 0; each < connection_count; each++) connections[each].due = depth, send_due(&connections[each], 0);
    int64_t begin = now_ns() + (int64_t)(warm_up_s * 1e9), end = begin + (int64_t)(seconds * 1e9), before = -1, now;
    int64_t last_count = 0, last_at = now_ns();
    double cpu_before = 0;
    for (;;) {
        now = now_ns();
        if (before < 0 && now >= begin) before = answered, begin = now, cpu_before = cpu_seconds();
        if (before >= 0 && now >= end && answered > before) break; /* one answer at least, however long it takes */
        if (answered > last_count) last_count = answered, last_at = now;
        if (now > last_at + STUCK_NS) die("closed", "nothing is answered");
        int count = wait_for_events(before < 0 ? begin : now < end ? end : last_at + STUCK_NS + 1, writable);
        for (int each = 0; each < count; each++) {
            connection_t *to = writable[each];
            to->due = to->answered + depth;
            send_due(to, 0);
        }
    }
    printf("{\"requests\": %" PRId64 ", \"seconds\": %.6f, \"failed\": %" PRId64 ", \"client_cpu_s\": %.6f, \"all_answered\": %" PRId64
           "}\n",
           answered - before, (double)(now - begin) / 1e9, failed, cpu_seconds() - cpu_before, answered);
}

int main(int argc, char **argv) {
    prctl(PR_SET_TIMERSLACK, 1UL);
    if (argc < 9) die("usage", "see the top of requests.c");
    protocol = !strcmp(argv[2], "kafka") ? KAFKA : !strcmp(argv[2], "resp") ? RESP : NATS;
    connection_count = atoi(argv[4]), frame_count = atoi(argv[5]);
    if (connection_count < 1 || connection_count > CONNECTIONS_MAX || frame_count < 1) die("usage", "see the top of requests.c");
    connect_all(atoi(argv[3]));
    if (argc == 10 && !strcmp(argv[1], "open")) open_loop(atof(argv[6]), atof(argv[7]), atof(argv[8]), argv[9]);
    else if (argc == 9 && !strcmp(argv[1], "closed")) closed_loop(atof(argv[6]), atof(argv[7]), atoi(argv[8]));
    else die("usage", "see the top of requests.c");
    return 0;
}

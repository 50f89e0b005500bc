/* Appends to the WAL on their way to the disk: the queue of its writer, and the groups that are written without the interpreter.
 * The layout of a frame's head is holdfast.log.wal.frames', and docs/formats/wal.md describes it. */
#ifndef HOLDFAST_APPEND_QUEUE_H
#define HOLDFAST_APPEND_QUEUE_H

#include "batch.h"

enum {
    MARK_BYTES = 20, /* of the file, which each head begins with */
    VERSION_AT = 20,
    KIND_AT = 21,
    LSN_AT = 24,
    LAST_SYNCED_AT = 32,
    TOPIC_AT = 40,
    TOPIC_BYTES = 16,
    EPOCH_AT = 56,
    BASE_AT = 64,
    PARTITION_AT = 72,
    COUNT_AT = 76,
    PAYLOAD_BYTES_AT = 80,
    PAYLOAD_CRC_AT = 84,
    CRC_AT = 92, /* behind the gap, which is none: of the head */
    FRAME_BYTES = 96,
    FRAME_VERSION = 1,
    MARK_KIND = 3, /* frames of later kinds need a file whose header says so */
    BLOCK_BYTES = 4096,
    PLAIN_BYTES_MAX = 64 * 1024 - 1, /* what is larger lies in the file as in memory, behind a gap */
    PARTS_MAX = 64
};

#ifdef __linux__
#include <pthread.h>

typedef struct append {
    struct append *next;
    PyObject *entry;
    int64_t size; /* of the frame */
    int64_t pushed_ns, position;
    uint32_t crc;
    char plain, known_crc;
    int kind;
    uint8_t head[FRAME_BYTES];
    Py_ssize_t parts;
    Py_buffer payload[];
} append_t;

typedef struct group {
    struct group *next;
    append_t *appends;
    Py_ssize_t count;
    int64_t size, first_lsn, generation;
    int64_t handover_ns, write_ns, synced_ns;
} group_t;

/* The file that is written, as far as it was. */
typedef struct {
    int descriptor, replicated;
    char *memory; /* it begins with what the block that `position` lies in holds before it */
    const char *mark;
    int64_t position, file_bytes, lsn, generation, group_bytes_max;
} wal_file_t;

typedef struct {
    PyObject_HEAD
    PyTypeObject *group_type;
    PyObject *reports;
    int descriptor; /* an eventfd, for the loop */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    append_t *first, *last;
    Py_ssize_t count;
    int64_t size, enough; /* of what is queued; with `enough` of it, nobody waits for the loop */
    group_t *done, *last_done;
    int waiting, closing, signalled;
} AppendQueue;

/* What the thread waits for: one that waits for both waits for appends first. */
enum { FOR_APPENDS = 1, FOR_THE_LOOP };

/* pending_append.c: all of it with the interpreter. NULL: an exception is set. `entries_of` lets go of the appends. */
int64_t now_ns(void);
append_t *new_append(PyObject *entry, int plain);
void free_append(append_t *append);
void free_appends(append_t *append);
PyObject *entries_of(append_t *append, Py_ssize_t count);
PyObject *positions_of(const append_t *append, Py_ssize_t count);

/* append_queue.c */
void signal_loop(AppendQueue *self);
void wait_locked(AppendQueue *self, int what);
int report_groups(AppendQueue *self);

/* append_serve.c */
PyObject *queue_serve(AppendQueue *self, PyObject *args);

/* group_write.c: 0, or the error. The file is moved on, and the appends know their positions, when it is written. */
int write_group(wal_file_t *file, group_t *group);

PyObject *append_queue_type(PyObject *module);
#endif

#endif

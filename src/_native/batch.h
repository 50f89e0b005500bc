/* Kafka RecordBatch v2 on the wire: the header, the rules a batch can break, bounded reads.
 *
 * The one rule: a byte is read only after its position was compared with the end, and a value that was read is kept in a
 * local, never read again. The input may lie, and another thread may change it while the GIL is released.
 */
#ifndef HOLDFAST_BATCH_H
#define HOLDFAST_BATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The numbers are those of holdfast.log.batches.rules.BatchRule; a test holds them equal. */
enum rule {
    SOUND = 0,
    RULE_CUT = 2,
    RULE_MAGIC = 3,
    RULE_LENGTH = 4,
    RULE_SIZE = 5,
    RULE_CODEC = 6,
    RULE_COUNT = 7,
    RULE_OFFSETS = 8,
    RULE_BASE_OFFSET = 9,
    RULE_TIMESTAMP = 10,
    RULE_CONTROL = 11,
    RULE_PRODUCER = 12,
    RULE_SEQUENCE = 13,
    RULE_TRANSACTIONAL = 14,
    RULE_ORDER = 18,
    RULE_RECORD_CUT = 20,
    RULE_VARINT = 21,
    RULE_RECORD_LENGTH = 22,
    RULE_OFFSET_DELTA = 23,
    RULE_RECORD_TIMESTAMP = 24,
    RULE_KEY = 25,
    RULE_VALUE = 26,
    RULE_HEADERS = 27,
    RULE_HEADER_KEY = 28,
    RULE_HEADER_VALUE = 29,
    RULE_TRAILING = 30
};

enum {
    HEADER_BYTES = 61,
    LENGTH_COVERS_FROM = 12, /* the length field counts what follows it */
    MAGIC_AT = 16,
    CRC_COVERS_FROM = 21,
    RECORD_BYTES_MIN = 7,
    BODY_BYTES_MIN = 6,
    HEADER_FIELDS = 13,
    CODEC_MASK = 0x07,
    APPEND_TIME = 0x08,
    TRANSACTIONAL = 0x10,
    CONTROL = 0x20,
    CODEC_MAX = 4
};

typedef struct {
    int64_t base_offset;
    int32_t length;
    int32_t leader_epoch;
    int32_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t count;
} header_t;

typedef struct {
    int stored; /* written by a log: gaps and control batches are lawful */
    int64_t batch_bytes_max;
    int64_t records_max;
} limits_t;

/* What is wrong, in which record (-1: in the header), and the value that is wrong. */
typedef struct {
    int rule;
    Py_ssize_t at;
    Py_ssize_t record;
    int64_t given;
} fault_t;

static inline uint16_t load_u16(const uint8_t *p) { return (uint16_t)((p[0] << 8) | p[1]); }

static inline uint32_t load_u32(const uint8_t *p)
{
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | (uint32_t)p[3];
}

static inline uint64_t load_u64(const uint8_t *p) { return ((uint64_t)load_u32(p) << 32) | load_u32(p + 4); }

/* Write the lower `bytes` of a number; what is behind it. */
static inline uint8_t *store_number(uint8_t *p, uint64_t number, int bytes)
{
    int i;
    for (i = 0; i < bytes; i++)
        p[i] = (uint8_t)(number >> (8 * (bytes - 1 - i)));
    return p + bytes;
}

/* a + b, and whether it left 64 bits; signed overflow would be undefined. */
static inline int add_overflows(int64_t a, int64_t b, int64_t *sum)
{
    *sum = (int64_t)((uint64_t)a + (uint64_t)b);
    return ((a ^ *sum) & (b ^ *sum)) < 0;
}

/* batch.c */
int check_header(const uint8_t *p, Py_ssize_t left, const limits_t *limits, header_t *header, int64_t *given);
int header_from_tuple(PyObject *fields, header_t *header);
PyObject *fault_tuple(const fault_t *fault);
PyObject *tuple_of_type(PyTypeObject *type, PyObject **items, Py_ssize_t n);
int is_tuple_type(PyObject *type);

/* crc.c */
void prepare_crc32c(void);
uint32_t crc32c(const uint8_t *p, Py_ssize_t bytes);
PyObject *crc32c_of(PyObject *module, PyObject *args);

/* check.c: `fault` has the first rule that a payload breaks */
void check_payload(const uint8_t *p, Py_ssize_t bytes, const header_t *header, int contiguous, fault_t *fault);

/* run.c */
PyObject *verify_run(PyObject *module, PyObject *args);
PyObject *number_run(PyObject *module, PyObject *args);
PyObject *locate_run(PyObject *module, PyObject *args);

/* index.c */
PyObject *read_blocks(PyObject *module, PyObject *args);
PyObject *pack_blocks(PyObject *module, PyObject *args);

/* ids.c */
PyObject *message_ids(PyObject *module, PyObject *args);

/* enqueues.c */
PyObject *pack_enqueue_keys(PyObject *module, PyObject *given);
PyObject *sequence_run(PyObject *module, PyObject *given);
PyObject *drop_older(PyObject *module, PyObject *args);

/* tokens.c */
PyObject *parse_tokens(PyObject *module, PyObject *args);

/* messages.c */
PyObject *wanted_of(PyObject *module, PyObject *args);
PyObject *picked_messages(PyObject *module, PyObject *args);
PyObject *enqueues_of(PyObject *module, PyObject *args);
PyObject *exempt(PyObject *module, PyObject *messages);
PyObject *stored_bytes(PyObject *module, PyObject *args);

/* picks.c */
PyObject *pick(PyObject *module, PyObject *args);
PyObject *pick_extents(PyObject *module, PyObject *args); /* pick_extents.c */
PyObject *bucket_counts(PyObject *module, PyObject *args);
PyObject *sorted_words(PyObject *module, PyObject *given);

/* join_blocks.c */
PyObject *join_blocks(PyObject *module, PyObject *args);

/* scan.c summary.c check.c read.c write.c columns.c */
PyObject *scan(PyObject *module, PyObject *args);
PyObject *summarize(PyObject *module, PyObject *args);
PyObject *check(PyObject *module, PyObject *args);
PyObject *keyless(PyObject *module, PyObject *args);
PyObject *read_records(PyObject *module, PyObject *args);
PyObject *read_chosen(PyObject *module, PyObject *args);
PyObject *write_records(PyObject *module, PyObject *args);
PyObject *write_values(PyObject *module, PyObject *args);
PyObject *write_blocks(PyObject *module, PyObject *args);
PyObject *write_padded(PyObject *module, PyObject *args);
PyObject *address(PyObject *module, PyObject *part);
PyObject *shorten_time_slice(PyObject *module, PyObject *unused);
PyObject *joined(PyObject *module, PyObject *args);
PyObject *produce(PyObject *module, PyObject *args);
PyObject *responses(PyObject *module, PyObject *args);
PyObject *columns(PyObject *module, PyObject *args);

#endif

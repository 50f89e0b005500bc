/* Records on the wire: varints and one record after another, each read bounded by its record's own end. */
#ifndef HOLDFAST_WIRE_H
#define HOLDFAST_WIRE_H

#include "batch.h"

typedef struct {
    const uint8_t *key, *value; /* NULL: null */
    int32_t key_bytes, value_bytes;
    int32_t header_count;
    int32_t offset_delta;
    int64_t timestamp;
    const uint8_t *headers, *end;
} record_t;

typedef struct {
    const uint8_t *key, *value;
    int32_t key_bytes, value_bytes;
} pair_t;

static inline int read_u32(const uint8_t **at, const uint8_t *end, uint32_t *value)
{
    const uint8_t *p = *at;
    uint32_t sum, byte;
    int shift;
    if (p >= end)
        return RULE_RECORD_CUT;
    sum = *p++;
    if (sum >= 0x80) {
        sum &= 0x7f;
        for (shift = 7;; shift += 7) {
            if (p >= end)
                return RULE_RECORD_CUT;
            byte = *p++;
            if (shift == 28 && byte > 0x0f)
                return RULE_VARINT;
            sum |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
    }
    *at = p;
    *value = sum;
    return SOUND;
}

static inline int read_i32(const uint8_t **at, const uint8_t *end, int32_t *value)
{
    uint32_t raw;
    int rule = read_u32(at, end, &raw);
    if (rule == SOUND)
        *value = (int32_t)((raw >> 1) ^ (0u - (raw & 1u)));
    return rule;
}

static inline int read_i64(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    const uint8_t *p = *at;
    uint64_t sum, byte;
    int shift;
    if (p >= end)
        return RULE_RECORD_CUT;
    sum = *p++;
    if (sum >= 0x80) {
        sum &= 0x7f;
        for (shift = 7;; shift += 7) {
            if (p >= end)
                return RULE_RECORD_CUT;
            byte = *p++;
            if (shift == 63 && byte > 1)
                return RULE_VARINT;
            sum |= (byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
    }
    *at = p;
    *value = (int64_t)((sum >> 1) ^ (0u - (sum & 1u)));
    return SOUND;
}

/* A length and that many bytes; -1 is null where `least` allows it. */
static inline int read_bytes(const uint8_t **at, const uint8_t *end, int32_t least, int broken, const uint8_t **bytes,
                             int32_t *length, int64_t *given)
{
    int rule = read_i32(at, end, length);
    if (rule != SOUND)
        return rule;
    if (*length < least || *length > end - *at) {
        *given = *length;
        return broken;
    }
    *bytes = NULL;
    if (*length >= 0) {
        *bytes = *at;
        *at += *length;
    }
    return SOUND;
}

static inline int read_pair(const uint8_t **at, const uint8_t *end, pair_t *pair, int64_t *given)
{
    int rule = read_bytes(at, end, 0, RULE_HEADER_KEY, &pair->key, &pair->key_bytes, given);
    if (rule == SOUND)
        rule = read_bytes(at, end, -1, RULE_HEADER_VALUE, &pair->value, &pair->value_bytes, given);
    return rule;
}

/* The length that a record begins with, and its end. */
static inline int enter_record(const uint8_t **at, const uint8_t **end, int64_t *given)
{
    int32_t length;
    int rule = read_i32(at, *end, &length);
    *given = 0;
    if (rule != SOUND)
        return rule;
    *given = length;
    if (length < BODY_BYTES_MIN)
        return RULE_RECORD_LENGTH;
    if (length > *end - *at)
        return RULE_RECORD_CUT;
    *end = *at + length;
    *given = 0;
    return SOUND;
}

/* One record up to its headers. The caller reads those with read_pair, and then `end` must be reached. */
static inline int read_record(const uint8_t **at, const uint8_t *end, const header_t *header, record_t *record,
                              int64_t *given)
{
    int64_t timestamp_delta;
    const uint8_t *p = *at;
    int rule = enter_record(&p, &end, given);
    if (rule != SOUND)
        return rule;
    p++; /* attributes: no bit of them means anything yet */
    if ((rule = read_i64(&p, end, &timestamp_delta)) != SOUND)
        return rule;
    if (add_overflows(header->base_timestamp, timestamp_delta, &record->timestamp)) {
        *given = timestamp_delta;
        return RULE_RECORD_TIMESTAMP;
    }
    if (header->attributes & APPEND_TIME)
        record->timestamp = header->max_timestamp;
    if ((rule = read_i32(&p, end, &record->offset_delta)) != SOUND)
        return rule;
    if ((rule = read_bytes(&p, end, -1, RULE_KEY, &record->key, &record->key_bytes, given)) != SOUND)
        return rule;
    if ((rule = read_bytes(&p, end, -1, RULE_VALUE, &record->value, &record->value_bytes, given)) != SOUND)
        return rule;
    if ((rule = read_i32(&p, end, &record->header_count)) != SOUND)
        return rule;
    if (record->header_count < 0 || record->header_count > (end - p) / 2) { /* a header is two bytes at least */
        *given = record->header_count;
        return RULE_HEADERS;
    }
    record->headers = p;
    record->end = end;
    *at = end;
    return SOUND;
}

/* Where the record at `at` ends and its offset delta, without a look at the rest of it. */
static inline int skip_record(const uint8_t **at, const uint8_t *end, int32_t *delta, int64_t *given)
{
    int64_t timestamp_delta;
    const uint8_t *p = *at;
    int rule = enter_record(&p, &end, given);
    if (rule != SOUND)
        return rule;
    p++; /* attributes */
    if ((rule = read_i64(&p, end, &timestamp_delta)) != SOUND || (rule = read_i32(&p, end, delta)) != SOUND)
        return rule;
    *at = end;
    return SOUND;
}

/* A payload has room for as many records as its header says. */
static inline int check_count(const header_t *header, Py_ssize_t bytes, int64_t *given)
{
    *given = header->count;
    return header->count < 0 || (int64_t)header->count * RECORD_BYTES_MIN > bytes ? RULE_COUNT : SOUND;
}

/* Offsets inside a batch grow and stay in it; a producer leaves no gap. */
static inline int check_delta(int32_t delta, int64_t previous, const header_t *header, int contiguous, int64_t *given)
{
    *given = delta;
    if (contiguous ? delta != previous + 1 : delta <= previous || delta > header->last_offset_delta)
        return RULE_OFFSET_DELTA;
    return SOUND;
}

/* The headers that nobody keeps are still checked, so that all readers agree on what is sound. */
static inline int skip_headers(const record_t *record, int64_t *given)
{
    const uint8_t *p = record->headers;
    pair_t pair;
    int32_t i;
    int rule;
    *given = 0;
    for (i = 0; i < record->header_count; i++)
        if ((rule = read_pair(&p, record->end, &pair, given)) != SOUND)
            return rule;
    *given = record->end - p;
    return p == record->end ? SOUND : RULE_RECORD_LENGTH;
}

/* read.c */
PyObject *header_pairs(const record_t *record, int *rule, int64_t *given);

#endif

/* Chosen records of batches, as they lie there: picks.c and pick_extents.c. */
#ifndef HOLDFAST_PICKS_H
#define HOLDFAST_PICKS_H

#include "wire.h"
#include <stdlib.h>

enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    WORD_BYTES = 8,
    PREFIX_BYTES = 2 * WORD_BYTES
};

typedef struct {
    const uint8_t *record;
    Py_ssize_t bytes;
    int64_t offset, timestamp;
    uint32_t bucket;
} pick_t;

typedef struct {
    pick_t *picked;
    Py_ssize_t count, room;
} picks_t;

static inline uint64_t word_at(const Py_buffer *words, Py_ssize_t at)
{
    uint64_t word;
    memcpy(&word, (const char *)words->buf + at * WORD_BYTES, sizeof word);
    return word;
}

/* A picked record at `out`; what is behind it. */
static inline char *put_pick(char *out, const pick_t *pick)
{
    memcpy(out, &pick->offset, WORD_BYTES);
    memcpy(out + WORD_BYTES, &pick->timestamp, WORD_BYTES);
    memcpy(out + PREFIX_BYTES, pick->record, (size_t)pick->bytes);
    return out + PREFIX_BYTES + pick->bytes;
}

/* picks.c: the interpreter is not needed in the first. -1: there is no memory; 0: see `fault` */
int pick_batch(const header_t *header, const Py_buffer *payload, const Py_buffer *words, Py_ssize_t *at, picks_t *out,
               fault_t *fault);
int are_words(const Py_buffer *words);
int can_pick(const header_t *header, Py_ssize_t at);

#endif

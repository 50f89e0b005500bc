/* A heap of offsets by a number each, with the set of the offsets that are in it. The twin in Python is
 * holdfast.heap.pure_offset_heap.PureOffsetHeap, which says what the methods do.
 *
 * The one rule: entries are removed lazily. An entry counts if the bit of its offset is set, and if its number is the one that the
 * offset has now (`changed`: numbers of offsets that may have other entries, too).
 */
#ifndef HOLDFAST_OFFSET_HEAP_H
#define HOLDFAST_OFFSET_HEAP_H

#include "batch.h"

enum { CHUNK_BITS = 13, CHUNK_BYTES = 1 << (CHUNK_BITS - 3), IN_CHUNK = (1 << CHUNK_BITS) - 1 };
enum { STALE_MIN = 4096, SAMPLED = 4096, WORD_BUCKETS = 256, OFFSETS_MAX = 1 << 30 };
#define OFFSET_LIMIT ((uint64_t)1 << 56)

typedef struct {
    uint64_t high, low; /* the number has up to 128 bits */
    uint64_t offset;
} heap_entry_t;

typedef struct {
    uint64_t number; /* the offsets from number << CHUNK_BITS on */
    uint32_t count;
    uint8_t bits[CHUNK_BYTES];
} chunk_t;

/* A set of offsets: chunks by their number in an open table, whose size is a power of two. */
typedef struct {
    chunk_t **slots;
    size_t room, used;
    chunk_t *last; /* the one that was found last */
    Py_ssize_t length;
} offset_set_t;

int set_has(offset_set_t *set, uint64_t offset);
int set_add_run(offset_set_t *set, uint64_t first, uint64_t end);
int set_discard(offset_set_t *set, uint64_t offset);
chunk_t *set_chunk(offset_set_t *set, uint64_t number, int create);
uint64_t *set_numbers(const offset_set_t *set); /* of its chunks, in order; NULL: no memory. The caller frees it. */
void set_clear(offset_set_t *set);

typedef struct {
    PyObject_HEAD
    heap_entry_t *entries;
    size_t used, room;
    offset_set_t members;
    PyObject *changed; /* {offset: number} */
} OffsetHeap;

static inline int is_less(const heap_entry_t *a, const heap_entry_t *b)
{
    if (a->high != b->high)
        return a->high < b->high;
    if (a->low != b->low)
        return a->low < b->low;
    return a->offset < b->offset;
}

static inline int is_same(const heap_entry_t *a, const heap_entry_t *b)
{
    return a->high == b->high && a->low == b->low && a->offset == b->offset;
}

int by_entry(const void *a, const void *b); /* for qsort */
int read_offset(PyObject *given, uint64_t *offset);
int read_number(PyObject *given, heap_entry_t *entry);
PyObject *pair_of(const heap_entry_t *entry);
int counts(OffsetHeap *self, const heap_entry_t *entry); /* whether an entry does; -1: an error */

/* What is best, without taking it (offset_heap_best.c). */
PyObject *heap_peek(OffsetHeap *self, PyObject *given);
PyObject *heap_bound(OffsetHeap *self, PyObject *given);
PyObject *heap_bounds(OffsetHeap *self, PyObject *args);
PyObject *heap_offsets_within(OffsetHeap *self, PyObject *args);
PyObject *heap_words_within(OffsetHeap *self, PyObject *args);

PyObject *offset_heap_type(PyObject *module);
PyObject *pack_heap_entries(PyObject *module, PyObject *args);
PyObject *read_heap_entries(PyObject *module, PyObject *args);

#endif

/* Offsets as bits, in chunks that go when they are empty. */
#include "offset_heap.h"
#include <stdlib.h>

static size_t slot_of(uint64_t number, size_t room) { return (size_t)(number * 0x9e3779b97f4a7c15ull >> 20) & (room - 1); }

static int grow(offset_set_t *set)
{
    size_t room = set->room ? 2 * set->room : 16, i, at;
    chunk_t **slots = calloc(room, sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (i = 0; i < set->room; i++)
        if (set->slots[i] != NULL) {
            for (at = slot_of(set->slots[i]->number, room); slots[at] != NULL; at = (at + 1) & (room - 1))
                ;
            slots[at] = set->slots[i];
        }
    free(set->slots);
    set->slots = slots;
    set->room = room;
    return 0;
}

chunk_t *set_chunk(offset_set_t *set, uint64_t number, int create)
{
    size_t at;
    chunk_t *chunk;
    if (set->last != NULL && set->last->number == number)
        return set->last;
    if (create && 2 * (set->used + 1) > set->room && grow(set) < 0)
        return NULL;
    if (set->room == 0)
        return NULL;
    for (at = slot_of(number, set->room); (chunk = set->slots[at]) != NULL; at = (at + 1) & (set->room - 1))
        if (chunk->number == number)
            return set->last = chunk;
    if (!create)
        return NULL;
    if ((chunk = calloc(1, sizeof *chunk)) == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    chunk->number = number;
    set->slots[at] = chunk;
    set->used++;
    return set->last = chunk;
}

static void remove_chunk(offset_set_t *set, chunk_t *chunk)
{
    size_t mask = set->room - 1, at = slot_of(chunk->number, set->room), next, home;
    while (set->slots[at] != chunk)
        at = (at + 1) & mask;
    for (next = (at + 1) & mask; set->slots[next] != NULL; next = (next + 1) & mask) {
        home = slot_of(set->slots[next]->number, set->room);
        if (((next - home) & mask) >= ((next - at) & mask)) { /* it is searched for from `at` or before: it moves there */
            set->slots[at] = set->slots[next];
            at = next;
        }
    }
    set->slots[at] = NULL;
    set->used--;
    set->last = NULL;
    free(chunk);
}

int set_has(offset_set_t *set, uint64_t offset)
{
    const chunk_t *chunk = set_chunk(set, offset >> CHUNK_BITS, 0);
    return chunk != NULL && (chunk->bits[(offset & IN_CHUNK) >> 3] >> (offset & 7) & 1);
}

int set_add_run(offset_set_t *set, uint64_t first, uint64_t end)
{
    for (; first < end; first++) {
        chunk_t *chunk = set_chunk(set, first >> CHUNK_BITS, 1);
        uint8_t *byte, bit = (uint8_t)(1 << (first & 7));
        if (chunk == NULL)
            return -1;
        byte = &chunk->bits[(first & IN_CHUNK) >> 3];
        if (!(*byte & bit)) {
            *byte |= bit;
            chunk->count++;
            set->length++;
        }
    }
    return 0;
}

int set_discard(offset_set_t *set, uint64_t offset)
{
    chunk_t *chunk = set_chunk(set, offset >> CHUNK_BITS, 0);
    uint8_t *byte, bit = (uint8_t)(1 << (offset & 7));
    if (chunk == NULL)
        return 0;
    byte = &chunk->bits[(offset & IN_CHUNK) >> 3];
    if (!(*byte & bit))
        return 0;
    *byte ^= bit;
    set->length--;
    if (--chunk->count == 0)
        remove_chunk(set, chunk);
    return 1;
}

static int by_number(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

uint64_t *set_numbers(const offset_set_t *set)
{
    uint64_t *numbers = malloc((set->used + 1) * sizeof *numbers);
    size_t i, count = 0;
    if (numbers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (i = 0; i < set->room; i++)
        if (set->slots[i] != NULL)
            numbers[count++] = set->slots[i]->number;
    qsort(numbers, count, sizeof *numbers, by_number);
    return numbers;
}

void set_clear(offset_set_t *set)
{
    size_t i;
    for (i = 0; i < set->room; i++)
        free(set->slots[i]);
    free(set->slots);
    memset(set, 0, sizeof *set);
}

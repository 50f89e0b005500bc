/* pick(payload, header, words, at, buffers), bucket_counts(words, others), sorted_words(data): chosen records of a heap
 * partition, put into buffers. They are read from there by picked_messages (messages.c). Many at once: pick_extents.c.
 *
 * A word is an offset and the number of a bucket: offset << 8 | bucket. A picked record is its offset and its time, eight bytes
 * each in the order of this machine, and the record as it was. The twins in Python are in holdfast.log.batches.pure and
 * holdfast.heap.picks. */
#include "picks.h"

int are_words(const Py_buffer *words)
{
    if (words->len % WORD_BYTES == 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "%zd bytes are no whole words", words->len);
    return 0;
}

int can_pick(const header_t *header, Py_ssize_t at)
{
    if (at >= 0 && header->base_offset >= 0 && header->last_offset_delta >= 0)
        return 1;
    PyErr_SetString(PyExc_ValueError, "words and offsets that are there");
    return 0;
}

static int add_pick(picks_t *out, const pick_t *pick)
{
    if (out->count == out->room) {
        Py_ssize_t room = 2 * out->room + 1024;
        pick_t *more = realloc(out->picked, (size_t)room * sizeof *more);
        if (more == NULL)
            return -1;
        out->picked = more;
        out->room = room;
    }
    out->picked[out->count++] = *pick;
    return 0;
}

/* The records of a batch that words from `at` on name; `at` is the first word behind it then. */
int pick_batch(const header_t *header, const Py_buffer *payload, const Py_buffer *words, Py_ssize_t *at, picks_t *out,
               fault_t *fault)
{
    const uint8_t *p = payload->buf, *end = p + payload->len, *next;
    Py_ssize_t count = words->len / WORD_BYTES;
    int64_t previous = -1, last = (int64_t)((uint64_t)header->base_offset + (uint64_t)header->last_offset_delta);
    int32_t index, delta;

    fault->record = -1;
    if ((fault->rule = check_count(header, payload->len, &fault->given)) != SOUND)
        return 0;
    for (index = 0; index < header->count; index++) {
        int64_t offset, wanted = 0;
        fault->record = index;
        next = p;
        if ((fault->rule = skip_record(&next, end, &delta, &fault->given)) != SOUND ||
            (fault->rule = check_delta(delta, previous, header, 0, &fault->given)) != SOUND)
            return 0;
        offset = (int64_t)((uint64_t)header->base_offset + (uint64_t)delta);
        while (*at < count && (wanted = (int64_t)(word_at(words, *at) >> BUCKET_BITS)) < offset)
            ++*at;
        if (*at == count || wanted > last)
            break;
        if (wanted == offset) {
            record_t record;
            pick_t pick = {p, next - p, offset, 0, (uint32_t)(word_at(words, *at) & (BUCKETS - 1))};
            if ((fault->rule = read_record(&p, end, header, &record, &fault->given)) != SOUND ||
                (fault->rule = skip_headers(&record, &fault->given)) != SOUND)
                return 0;
            pick.timestamp = record.timestamp;
            if (add_pick(out, &pick) < 0)
                return -1;
        }
        p = next;
        previous = delta;
    }
    while (*at < count && (int64_t)(word_at(words, *at) >> BUCKET_BITS) <= last)
        ++*at;
    return 0;
}

static int put_picked(PyObject *buffers, const pick_t *pick)
{
    PyObject *buffer;
    Py_ssize_t used;
    if (pick->bucket >= PyList_GET_SIZE(buffers)) {
        PyErr_Format(PyExc_ValueError, "there is no bucket %u", (unsigned)pick->bucket);
        return -1;
    }
    buffer = PyList_GET_ITEM(buffers, pick->bucket);
    if (!PyByteArray_Check(buffer)) {
        PyErr_SetString(PyExc_TypeError, "buffers are bytearrays");
        return -1;
    }
    used = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, used + PREFIX_BYTES + pick->bytes) < 0)
        return -1;
    put_pick(PyByteArray_AS_STRING(buffer) + used, pick);
    return 0;
}

/* The records that words from `at` on name, each into the buffer of its bucket; the first word behind the batch, or a fault. */
PyObject *pick(PyObject *module, PyObject *args)
{
    Py_buffer payload, words = {0};
    PyObject *fields, *buffers, *answer = NULL;
    Py_ssize_t at, i;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    picks_t found = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "y*Oy*nO!", &payload, &fields, &words, &at, &PyList_Type, &buffers))
        return NULL;
    if (header_from_tuple(fields, &header) < 0 || !are_words(&words) || !can_pick(&header, at))
        goto done;
    if (pick_batch(&header, &payload, &words, &at, &found, &fault) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    if (fault.rule != SOUND) {
        answer = fault_tuple(&fault);
        goto done;
    }
    for (i = 0; i < found.count; i++)
        if (put_picked(buffers, &found.picked[i]) < 0)
            goto done;
    answer = PyLong_FromSsize_t(at);
done:
    free(found.picked);
    PyBuffer_Release(&payload);
    PyBuffer_Release(&words);
    return answer;
}

/* How many of `others`, which are sorted words too, are in each bucket of `words`. */
PyObject *bucket_counts(PyObject *module, PyObject *args)
{
    Py_buffer words, others = {0};
    Py_ssize_t counts[BUCKETS] = {0}, count, at, low = 0, bucket;
    PyObject *found = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*", &words, &others))
        return NULL;
    if (!are_words(&words) || !are_words(&others))
        goto done;
    count = words.len / WORD_BYTES;
    for (at = 0; at < others.len / WORD_BYTES; at++) {
        uint64_t wanted = word_at(&others, at) >> BUCKET_BITS;
        Py_ssize_t high = count;
        while (low < high) {
            Py_ssize_t middle = low + (high - low) / 2;
            if (word_at(&words, middle) >> BUCKET_BITS < wanted)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < count && word_at(&words, low) >> BUCKET_BITS == wanted)
            counts[word_at(&words, low) & (BUCKETS - 1)]++;
    }
    if ((found = PyList_New(BUCKETS)) == NULL)
        goto done;
    for (bucket = 0; bucket < BUCKETS; bucket++) {
        PyObject *each = PyLong_FromSsize_t(counts[bucket]);
        if (each == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyList_SET_ITEM(found, bucket, each);
    }
done:
    PyBuffer_Release(&words);
    PyBuffer_Release(&others);
    return found;
}

static int by_word(const void *one, const void *other)
{
    uint64_t a, b;
    memcpy(&a, one, sizeof a);
    memcpy(&b, other, sizeof b);
    return a < b ? -1 : a > b;
}

/* Words in order. Other threads run meanwhile. */
PyObject *sorted_words(PyObject *module, PyObject *given)
{
    Py_buffer words;
    PyObject *sorted = NULL;
    (void)module;
    if (PyObject_GetBuffer(given, &words, PyBUF_SIMPLE) < 0)
        return NULL;
    if (are_words(&words) && (sorted = PyBytes_FromStringAndSize(words.buf, words.len)) != NULL) {
        char *out = PyBytes_AS_STRING(sorted);
        Py_BEGIN_ALLOW_THREADS;
        qsort(out, (size_t)(words.len / WORD_BYTES), WORD_BYTES, by_word);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&words);
    return sorted;
}

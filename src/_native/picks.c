/* pick(payload, header, words, at, buffers), bucket_counts(words, others), sorted_words(data): chosen records of a heap
 * partition, put into buffers. They are read from there by picked_messages (messages.c).
 *
 * A word is an offset and the number of a bucket: offset << 8 | bucket. A picked record is its offset and its time, eight bytes
 * each in the order of this machine, and the record as it was. The twins in Python are in holdfast.log.batches.pure and
 * holdfast.heap.picks. */
#include "wire.h"
#include <stdlib.h>

enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    WORD_BYTES = 8,
    PREFIX_BYTES = 2 * WORD_BYTES
};

static uint64_t word_at(const Py_buffer *words, Py_ssize_t at)
{
    uint64_t word;
    memcpy(&word, (const char *)words->buf + at * WORD_BYTES, sizeof word);
    return word;
}

static int are_words(const Py_buffer *words)
{
    if (words->len % WORD_BYTES == 0)
        return 1;
    PyErr_Format(PyExc_ValueError, "%zd bytes are no whole words", words->len);
    return 0;
}

static int put_picked(PyObject *buffer, int64_t offset, int64_t timestamp, const uint8_t *record, Py_ssize_t bytes)
{
    Py_ssize_t used;
    char *out;
    if (!PyByteArray_Check(buffer)) {
        PyErr_SetString(PyExc_TypeError, "buffers are bytearrays");
        return -1;
    }
    used = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, used + PREFIX_BYTES + bytes) < 0)
        return -1;
    out = PyByteArray_AS_STRING(buffer) + used;
    memcpy(out, &offset, WORD_BYTES);
    memcpy(out + WORD_BYTES, &timestamp, WORD_BYTES);
    memcpy(out + PREFIX_BYTES, record, (size_t)bytes);
    return 0;
}

/* The records that words from `at` on name, each into the buffer of its bucket; the first word behind the batch, or a fault. */
PyObject *pick(PyObject *module, PyObject *args)
{
    Py_buffer payload, words = {0};
    PyObject *fields, *buffers, *answer = NULL;
    Py_ssize_t at, count;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    const uint8_t *p, *end, *next;
    int64_t previous = -1, last;
    int32_t index, delta;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*Oy*nO!", &payload, &fields, &words, &at, &PyList_Type, &buffers))
        return NULL;
    if (header_from_tuple(fields, &header) < 0 || !are_words(&words))
        goto done;
    count = words.len / WORD_BYTES;
    if (at < 0 || header.base_offset < 0 || header.last_offset_delta < 0) {
        PyErr_SetString(PyExc_ValueError, "words and offsets that are there");
        goto done;
    }
    p = payload.buf;
    end = p + payload.len;
    if ((fault.rule = check_count(&header, payload.len, &fault.given)) != SOUND) {
        answer = fault_tuple(&fault);
        goto done;
    }
    last = (int64_t)((uint64_t)header.base_offset + (uint64_t)header.last_offset_delta);
    for (index = 0; index < header.count; index++) {
        int64_t offset, wanted = 0;
        next = p;
        if ((fault.rule = skip_record(&next, end, &delta, &fault.given)) == SOUND)
            fault.rule = check_delta(delta, previous, &header, 0, &fault.given);
        offset = (int64_t)((uint64_t)header.base_offset + (uint64_t)delta);
        while (fault.rule == SOUND && at < count && (wanted = (int64_t)(word_at(&words, at) >> BUCKET_BITS)) < offset)
            at++;
        if (fault.rule == SOUND && (at == count || wanted > last))
            break;
        if (fault.rule == SOUND && wanted == offset) {
            record_t record;
            const uint8_t *begin = p;
            Py_ssize_t bucket = (Py_ssize_t)(word_at(&words, at) & (BUCKETS - 1));
            if ((fault.rule = read_record(&p, end, &header, &record, &fault.given)) == SOUND)
                fault.rule = skip_headers(&record, &fault.given);
            if (fault.rule == SOUND) {
                if (bucket >= PyList_GET_SIZE(buffers)) {
                    PyErr_Format(PyExc_ValueError, "there is no bucket %zd", bucket);
                    goto done;
                }
                if (put_picked(PyList_GET_ITEM(buffers, bucket), offset, record.timestamp, begin, next - begin) < 0)
                    goto done;
            }
        }
        if (fault.rule != SOUND) {
            fault.record = index;
            answer = fault_tuple(&fault);
            goto done;
        }
        p = next;
        previous = delta;
    }
    while (at < count && (int64_t)(word_at(&words, at) >> BUCKET_BITS) <= last)
        at++;
    answer = PyLong_FromSsize_t(at);
done:
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

/* pick(payload, header, words, at, buffers), picked_messages(data, kinds, otherwise), bucket_counts(words, others),
 * sorted_words(data): chosen records of a heap partition, put into buffers, and read from there as messages.
 *
 * A word is an offset and the number of a bucket: offset << 8 | bucket. A picked record is its offset and its time, eight bytes
 * each in the order of this machine, and the record as it was. The twins in Python are in
 * holdfast.log.batches.pure and holdfast.heap.pure_picks. */
#include "wire.h"
#include <stdlib.h>

enum {
    BUCKET_BITS = 8,
    BUCKETS = 1 << BUCKET_BITS,
    WORD_BYTES = 8,
    PREFIX_BYTES = 2 * WORD_BYTES,
    /* holdfast.heap.records */
    RECORD_VERSION = 1,
    OP_ENQUEUE = 1,
    FLAG_PRODUCER = 1,
    FLAG_PARTITION_KEY = 2,
    FLAG_FAIRNESS_KEY = 8,
    ENQUEUE_BYTES = 23,
    SEQUENCE_BYTES = 16,
    ENQUEUE_FIELDS = 9
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
    if (header.count < 0 || (int64_t)header.count * RECORD_BYTES_MIN > payload.len) {
        fault.rule = RULE_COUNT;
        fault.given = header.count;
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

typedef struct {
    PyTypeObject *enqueue, *stored, *sequence;
    PyObject *otherwise;
    PyObject *name; /* of the last producer: the next one is mostly the same */
} kinds_t;

/* A text of a key: 1 with a new reference, 0 if it is none, -1 on a Python error. */
static int read_text(const uint8_t **at, const uint8_t *end, PyObject **last, PyObject **text)
{
    Py_ssize_t bytes, known_bytes;
    const char *known;
    if (end - *at < 2)
        return 0;
    bytes = load_u16(*at);
    if (end - *at - 2 < bytes)
        return 0;
    if (last != NULL && *last != NULL && (known = PyUnicode_AsUTF8AndSize(*last, &known_bytes)) != NULL &&
        known_bytes == bytes && memcmp(known, *at + 2, (size_t)bytes) == 0)
        *text = Py_NewRef(*last);
    else if ((*text = PyUnicode_DecodeUTF8((const char *)*at + 2, bytes, NULL)) == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (last != NULL)
        Py_XSETREF(*last, Py_NewRef(*text));
    *at += 2 + bytes;
    return 1;
}

static int read_producer(const uint8_t **at, const uint8_t *end, kinds_t *kinds, PyObject **producer)
{
    PyObject *items[3];
    int read = read_text(at, end, &kinds->name, &items[0]);
    if (read != 1)
        return read;
    if (end - *at < SEQUENCE_BYTES) {
        Py_DECREF(items[0]);
        return 0;
    }
    items[1] = PyLong_FromLongLong((int64_t)load_u64(*at));
    items[2] = PyLong_FromLongLong((int64_t)load_u64(*at + WORD_BYTES));
    *at += SEQUENCE_BYTES;
    *producer = tuple_of_type(kinds->sequence, items, 3);
    return *producer == NULL ? -1 : 1;
}

/* The ENQUEUE of a record: 1 with a new reference, 0 if Python has to look at it, -1 on a Python error. */
static int read_enqueue(const record_t *record, PyObject *headers, kinds_t *kinds, PyObject **enqueue)
{
    const uint8_t *p = record->key, *end = p + record->key_bytes;
    PyObject *producer = NULL, *partition_key = NULL, *fairness_key = NULL, *items[ENQUEUE_FIELDS];
    int flags, read = 1, i;
    if (p == NULL || record->value == NULL || record->key_bytes < ENQUEUE_BYTES || p[0] != RECORD_VERSION ||
        p[1] != OP_ENQUEUE)
        return 0;
    flags = p[2];
    if (flags & ~(FLAG_PRODUCER | FLAG_PARTITION_KEY | FLAG_FAIRNESS_KEY))
        return 0;
    p += ENQUEUE_BYTES;
    if (flags & FLAG_PRODUCER)
        read = read_producer(&p, end, kinds, &producer);
    if (read == 1 && flags & FLAG_PARTITION_KEY)
        read = read_text(&p, end, NULL, &partition_key);
    if (read == 1 && flags & FLAG_FAIRNESS_KEY)
        read = read_text(&p, end, NULL, &fairness_key);
    if (read != 1) {
        Py_XDECREF(producer);
        Py_XDECREF(partition_key);
        return read;
    }
    items[0] = PyLong_FromLongLong((int64_t)load_u64(record->key + 3));
    items[1] = PyBytes_FromStringAndSize((const char *)record->value, record->value_bytes);
    items[2] = PyLong_FromLongLong((int64_t)load_u64(record->key + 11));
    items[3] = PyLong_FromLong((int32_t)load_u32(record->key + 19));
    items[4] = producer;
    items[5] = partition_key;
    items[6] = NULL; /* where it was before: Python reads that */
    items[7] = Py_NewRef(headers);
    items[8] = fairness_key;
    for (i = 4; i < ENQUEUE_FIELDS; i++)
        if (items[i] == NULL)
            items[i] = Py_NewRef(Py_None);
    *enqueue = tuple_of_type(kinds->enqueue, items, ENQUEUE_FIELDS);
    return *enqueue == NULL ? -1 : 1;
}

static int add_message(PyObject *found, int64_t offset, int64_t timestamp, const record_t *record, PyObject *headers,
                       kinds_t *kinds)
{
    PyObject *items[2], *key = NULL, *message = NULL, *pair;
    int read = read_enqueue(record, headers, kinds, &items[0]), failed;
    if (read < 0)
        return -1;
    if (read == 1) {
        items[1] = PyLong_FromLongLong(timestamp);
        message = tuple_of_type(kinds->stored, items, 2);
        key = message == NULL ? NULL : PyLong_FromLongLong(offset);
    } else {
        pair = PyObject_CallFunction(kinds->otherwise, "LLy#y#O", (long long)offset, (long long)timestamp, record->key,
                                     (Py_ssize_t)(record->key == NULL ? 0 : record->key_bytes), record->value,
                                     (Py_ssize_t)(record->value == NULL ? 0 : record->value_bytes), headers);
        if (pair == Py_None) { /* a record of something else */
            Py_DECREF(pair);
            return 0;
        }
        if (pair != NULL && PyArg_ParseTuple(pair, "OO", &key, &message)) {
            Py_INCREF(key);
            Py_INCREF(message);
        }
        Py_XDECREF(pair);
    }
    failed = key == NULL || PyDict_SetItem(found, key, message) < 0;
    Py_XDECREF(key);
    Py_XDECREF(message);
    return failed ? -1 : 0;
}

/* The messages of picked records by offset. `kinds`: Enqueue, StoredMessage, ProducerSequence. What is no plain ENQUEUE goes to
 * `otherwise`, which returns an offset and a message, or None. */
PyObject *picked_messages(PyObject *module, PyObject *args)
{
    Py_buffer data;
    PyObject *enqueue, *stored, *sequence, *found = NULL, *headers;
    kinds_t kinds = {0};
    header_t header = {0};
    const uint8_t *p, *end;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*(OOO)O", &data, &enqueue, &stored, &sequence, &kinds.otherwise))
        return NULL;
    if (!is_tuple_type(enqueue) || !is_tuple_type(stored) || !is_tuple_type(sequence) || (found = PyDict_New()) == NULL)
        goto done;
    kinds.enqueue = (PyTypeObject *)enqueue;
    kinds.stored = (PyTypeObject *)stored;
    kinds.sequence = (PyTypeObject *)sequence;
    p = data.buf;
    end = p + data.len;
    while (p < end) {
        int64_t offset = 0, timestamp = 0, given;
        record_t record;
        int rule = RULE_RECORD_CUT, failed;
        headers = NULL;
        if (end - p > PREFIX_BYTES) {
            memcpy(&offset, p, sizeof offset);
            memcpy(&timestamp, p + WORD_BYTES, sizeof timestamp);
            p += PREFIX_BYTES;
            if ((rule = read_record(&p, end, &header, &record, &given)) == SOUND)
                headers = header_pairs(&record, &rule, &given);
        }
        if (rule != SOUND)
            PyErr_SetString(PyExc_ValueError, "records that were picked");
        failed = headers == NULL || add_message(found, offset, timestamp, &record, headers, &kinds) < 0;
        Py_XDECREF(headers);
        if (failed) {
            Py_CLEAR(found);
            break;
        }
    }
done:
    Py_XDECREF(kinds.name);
    PyBuffer_Release(&data);
    return found;
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

/* pick_extents(batches, words, at, bytes_max): chosen records of several batches (picks.c), those of a bucket together.
 *
 * `batches` are pairs of a payload and a header. Returns the bytes, extents (bucket, bytes, CRC-32C) that lie in them one behind
 * another, no larger than `bytes_max` unless they are one record, and the first word behind the batches; or a fault. Other threads
 * run meanwhile. The twin in Python is in holdfast.log.batches.pure. */
#include "picks.h"

typedef struct {
    uint32_t bucket, crc;
    Py_ssize_t bytes;
} extent_t;

typedef struct {
    extent_t *extents;
    Py_ssize_t count, room;
} extents_t;

/* Picks in the order of their buckets, and of the log in each. */
static pick_t *by_bucket(const picks_t *found, Py_ssize_t *bytes)
{
    Py_ssize_t first[BUCKETS + 1] = {0}, i;
    pick_t *sorted = malloc((size_t)(found->count ? found->count : 1) * sizeof *sorted);
    *bytes = 0;
    if (sorted == NULL)
        return NULL;
    for (i = 0; i < found->count; i++) {
        first[found->picked[i].bucket + 1]++;
        *bytes += PREFIX_BYTES + found->picked[i].bytes;
    }
    for (i = 0; i < BUCKETS; i++)
        first[i + 1] += first[i];
    for (i = 0; i < found->count; i++)
        sorted[first[found->picked[i].bucket]++] = found->picked[i];
    return sorted;
}

static int add_extent(extents_t *out, uint32_t bucket, const char *begin, const char *end)
{
    if (out->count == out->room) {
        Py_ssize_t room = 2 * out->room + BUCKETS;
        extent_t *more = realloc(out->extents, (size_t)room * sizeof *more);
        if (more == NULL)
            return -1;
        out->extents = more;
        out->room = room;
    }
    out->extents[out->count++] =
        (extent_t){bucket, crc32c((const uint8_t *)begin, (Py_ssize_t)(end - begin)), (Py_ssize_t)(end - begin)};
    return 0;
}

static int put_sorted(char *out, const pick_t *sorted, Py_ssize_t count, Py_ssize_t bytes_max, extents_t *extents)
{
    char *begin = out;
    Py_ssize_t i;
    for (i = 0; i < count; i++) {
        if (out > begin &&
            (sorted[i].bucket != sorted[i - 1].bucket || out - begin + PREFIX_BYTES + sorted[i].bytes > bytes_max)) {
            if (add_extent(extents, sorted[i - 1].bucket, begin, out) < 0)
                return -1;
            begin = out;
        }
        out = put_pick(out, &sorted[i]);
    }
    return out > begin ? add_extent(extents, sorted[count - 1].bucket, begin, out) : 0;
}

static PyObject *extent_list(const extents_t *extents)
{
    PyObject *found = PyList_New(extents->count), *each;
    Py_ssize_t i;
    for (i = 0; found != NULL && i < extents->count; i++) {
        each = Py_BuildValue("(InI)", (unsigned)extents->extents[i].bucket, extents->extents[i].bytes,
                             (unsigned)extents->extents[i].crc);
        if (each == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, each);
    }
    return found;
}

PyObject *pick_extents(PyObject *module, PyObject *args)
{
    PyObject *batches, *fields, *data = NULL, *listed = NULL, *answer = NULL;
    Py_buffer words = {0}, *payloads = NULL;
    Py_ssize_t at, bytes_max, count, held = 0, bytes = 0, i;
    header_t *headers = NULL;
    fault_t fault = {SOUND, 0, -1, 0};
    picks_t found = {0};
    pick_t *sorted = NULL;
    extents_t extents = {0};
    int failed = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!y*nn", &PyList_Type, &batches, &words, &at, &bytes_max))
        return NULL;
    count = PyList_GET_SIZE(batches);
    payloads = calloc((size_t)count + 1, sizeof *payloads);
    headers = calloc((size_t)count + 1, sizeof *headers);
    if (payloads == NULL || headers == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (!are_words(&words))
        goto done;
    for (i = 0; i < count; i++, held++) {
        PyObject *pair = PyList_GET_ITEM(batches, i);
        if (!PyTuple_Check(pair)) {
            PyErr_SetString(PyExc_TypeError, "batches are pairs");
            goto done;
        }
        if (!PyArg_ParseTuple(pair, "y*O", &payloads[i], &fields))
            goto done;
        if (header_from_tuple(fields, &headers[i]) < 0 || !can_pick(&headers[i], at)) {
            held++;
            goto done;
        }
    }
    Py_BEGIN_ALLOW_THREADS;
    for (i = 0; i < count && !failed && fault.rule == SOUND; i++)
        failed = pick_batch(&headers[i], &payloads[i], &words, &at, &found, &fault) < 0;
    if (!failed && fault.rule == SOUND)
        failed = (sorted = by_bucket(&found, &bytes)) == NULL;
    Py_END_ALLOW_THREADS;
    if (failed) {
        PyErr_NoMemory();
        goto done;
    }
    if (fault.rule != SOUND) {
        answer = fault_tuple(&fault);
        goto done;
    }
    if ((data = PyBytes_FromStringAndSize(NULL, bytes)) == NULL)
        goto done;
    Py_BEGIN_ALLOW_THREADS;
    failed = put_sorted(PyBytes_AS_STRING(data), sorted, found.count, bytes_max, &extents) < 0;
    Py_END_ALLOW_THREADS;
    if (failed)
        PyErr_NoMemory();
    else if ((listed = extent_list(&extents)) != NULL)
        answer = Py_BuildValue("(OOn)", data, listed, at);
done:
    Py_XDECREF(data);
    Py_XDECREF(listed);
    for (i = 0; i < held; i++)
        PyBuffer_Release(&payloads[i]);
    free(payloads);
    free(headers);
    free(found.picked);
    free(sorted);
    free(extents.extents);
    PyBuffer_Release(&words);
    return answer;
}

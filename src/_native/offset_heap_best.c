/* The best of an OffsetHeap, which stay in it: see offset_heap.h. */
#include "offset_heap.h"
#include <stdlib.h>

/* An entry that may come next, and its place in the heap. */
typedef struct {
    heap_entry_t entry;
    size_t at;
} open_entry_t;

static void open_push(open_entry_t *open, size_t *used, const OffsetHeap *self, size_t at)
{
    open_entry_t pushed = {self->entries[at], at};
    size_t i;
    for (i = (*used)++; i > 0 && is_less(&pushed.entry, &open[(i - 1) / 2].entry); i = (i - 1) / 2)
        open[i] = open[(i - 1) / 2];
    open[i] = pushed;
}

static void open_pop(open_entry_t *open, size_t *used)
{
    open_entry_t moved = open[--*used];
    size_t i = 0, down;
    for (; (down = 2 * i + 1) < *used; i = down) {
        if (down + 1 < *used && is_less(&open[down + 1].entry, &open[down].entry))
            down++;
        if (!is_less(&open[down].entry, &moved.entry))
            break;
        open[i] = open[down];
    }
    open[i] = moved;
}

/* What is at the top, in order; it stays. The next one is always a child of one that was seen. */
PyObject *heap_peek(OffsetHeap *self, PyObject *given)
{
    Py_ssize_t count = PyLong_AsSsize_t(given);
    open_entry_t *open = NULL, next;
    size_t used = 0, room = 0, child;
    PyObject *found, *each;
    heap_entry_t before = {0, 0, OFFSET_LIMIT};
    int counted;
    if ((count == -1 && PyErr_Occurred()) || (found = PyList_New(0)) == NULL)
        return NULL;
    for (child = 0; PyList_GET_SIZE(found) < count; child = 2 * next.at + 1) {
        if (used + 2 > room) {
            open_entry_t *more = realloc(open, (room = 2 * room + 64) * sizeof *open);
            if (more == NULL) {
                PyErr_NoMemory();
                goto failed;
            }
            open = more;
        }
        if (child < self->used)
            open_push(open, &used, self, child);
        if (child > 0 && child + 1 < self->used)
            open_push(open, &used, self, child + 1);
        if (used == 0)
            break;
        next = open[0];
        open_pop(open, &used);
        if (is_same(&next.entry, &before))
            continue;
        if ((counted = counts(self, &next.entry)) < 0)
            goto failed;
        if (counted == 0)
            continue;
        before = next.entry;
        if ((each = pair_of(&before)) == NULL || PyList_Append(found, each) < 0) {
            Py_XDECREF(each);
            goto failed;
        }
        Py_DECREF(each);
    }
    free(open);
    return found;
failed:
    free(open);
    Py_DECREF(found);
    return NULL;
}

/* bound(count): the number and offset that about so many entries are not above, by a sample; None: all of them. */
PyObject *heap_bound(OffsetHeap *self, PyObject *given)
{
    heap_entry_t sample[SAMPLED];
    size_t count = PyLong_AsSize_t(given), size = self->used < SAMPLED ? self->used : SAMPLED, i;
    if (count == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (count >= self->used)
        Py_RETURN_NONE;
    for (i = 0; i < size; i++)
        sample[i] = self->entries[i * self->used / size];
    qsort(sample, size, sizeof *sample, by_entry);
    return pair_of(&sample[count * size / self->used]);
}

/* bounds(count, buckets): the same for so many parts of `count`, in order; the last one of all entries if there are no more. */
PyObject *heap_bounds(OffsetHeap *self, PyObject *args)
{
    heap_entry_t sample[SAMPLED], all = {UINT64_MAX, UINT64_MAX, OFFSET_LIMIT - 1};
    size_t size = self->used < SAMPLED ? self->used : SAMPLED, i;
    Py_ssize_t count, buckets, at;
    PyObject *found;
    if (!PyArg_ParseTuple(args, "nn", &count, &buckets))
        return NULL;
    if (count < 1 || count > OFFSETS_MAX || buckets < 1 || buckets > WORD_BUCKETS) {
        PyErr_SetString(PyExc_ValueError, "1 to 256 buckets of some");
        return NULL;
    }
    for (i = 0; i < size; i++)
        sample[i] = self->entries[i * self->used / size];
    qsort(sample, size, sizeof *sample, by_entry);
    if ((found = PyTuple_New(buckets)) == NULL)
        return NULL;
    for (at = 0; at < buckets; at++) {
        size_t part = (size_t)count * (size_t)(at + 1) / (size_t)buckets;
        PyObject *pair = pair_of(part >= self->used ? &all : &sample[part * size / self->used]);
        if (pair == NULL) {
            Py_DECREF(found);
            return NULL;
        }
        PyTuple_SET_ITEM(found, at, pair);
    }
    return found;
}

/* Append the offset of an entry, if it counts. */
static int append_offset(OffsetHeap *self, const heap_entry_t *entry, PyObject *found)
{
    int counted = counts(self, entry), failed;
    PyObject *offset;
    if (counted <= 0)
        return counted;
    if ((offset = PyLong_FromUnsignedLongLong(entry->offset)) == NULL)
        return -1;
    failed = PyList_Append(found, offset);
    Py_DECREF(offset);
    return failed;
}

/* offsets_within(bound, part, parts): offsets of entries that are not above a bound, in no order. What is below an entry that is
 * above it is above it, too, and is not looked at. A part has one of so many subtrees, the first one also what they hang on. */
PyObject *heap_offsets_within(OffsetHeap *self, PyObject *args)
{
    PyObject *bound, *number, *offset, *found;
    heap_entry_t most = {UINT64_MAX, UINT64_MAX, OFFSET_LIMIT};
    Py_ssize_t part, parts;
    size_t later[64], waiting = 0, at; /* right children of what was seen: one a level */
    if (!PyArg_ParseTuple(args, "Onn", &bound, &part, &parts))
        return NULL;
    if (part < 0 || part >= parts || parts & (parts - 1)) {
        PyErr_SetString(PyExc_ValueError, "one of parts that are a power of two");
        return NULL;
    }
    if (bound != Py_None && (!PyArg_ParseTuple(bound, "OO", &number, &offset) || read_number(number, &most) < 0 ||
                             read_offset(offset, &most.offset) < 0))
        return NULL;
    if ((found = PyList_New(0)) == NULL)
        return NULL;
    for (at = 0; part == 0 && at < (size_t)parts - 1 && at < self->used; at++)
        if (!is_less(&most, &self->entries[at]) && append_offset(self, &self->entries[at], found) < 0)
            goto failed;
    at = (size_t)(parts - 1 + part);
    for (;;) {
        if (at < self->used && !is_less(&most, &self->entries[at])) {
            if (append_offset(self, &self->entries[at], found) < 0)
                goto failed;
            later[waiting++] = 2 * at + 2;
            at = 2 * at + 1;
        } else if (waiting) {
            at = later[--waiting];
        } else {
            return found;
        }
    }
failed:
    Py_DECREF(found);
    return NULL;
}

/* words_within(bounds, places, start, first, stop): entries of a part that are not above the last bound, as words
 * `place << 8 | bucket`: the bucket is that of the first bound they are not above, the place that of `places`, or the offset.
 * Those whose place is before `start` are left out. */
PyObject *heap_words_within(OffsetHeap *self, PyObject *args)
{
    PyObject *bounds, *places, *number, *offset, *found = NULL;
    heap_entry_t most[WORD_BUCKETS];
    Py_ssize_t first, stop, i, count = 0;
    unsigned long long start;
    char *out;
    if (!PyArg_ParseTuple(args, "O!O!Knn", &PyTuple_Type, &bounds, &PyDict_Type, &places, &start, &first, &stop))
        return NULL;
    if (PyTuple_GET_SIZE(bounds) == 0 || PyTuple_GET_SIZE(bounds) > WORD_BUCKETS) {
        PyErr_SetString(PyExc_ValueError, "1 to 256 bounds");
        return NULL;
    }
    for (i = 0; i < PyTuple_GET_SIZE(bounds); i++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(bounds, i), "OO", &number, &offset) || read_number(number, &most[i]) < 0 ||
            read_offset(offset, &most[i].offset) < 0)
            return NULL;
    first = first < 0 ? 0 : first;
    stop = stop < (Py_ssize_t)self->used ? stop : (Py_ssize_t)self->used;
    found = PyBytes_FromStringAndSize(NULL, stop > first ? (stop - first) * (Py_ssize_t)sizeof(uint64_t) : 0);
    if (found == NULL)
        return NULL;
    out = PyBytes_AS_STRING(found);
    for (i = first; i < stop; i++) {
        Py_ssize_t low = 0, high = PyTuple_GET_SIZE(bounds);
        uint64_t place = self->entries[i].offset, word;
        int counted, failed = 0;
        if (PyDict_GET_SIZE(places) > 0) {
            PyObject *key = PyLong_FromUnsignedLongLong(place), *moved;
            moved = key == NULL ? NULL : PyDict_GetItemWithError(places, key);
            failed = moved == NULL ? PyErr_Occurred() != NULL : read_offset(moved, &place) < 0;
            Py_XDECREF(key);
        }
        if (!failed && place < start) /* most of them, mostly */
            continue;
        while (!failed && low < high) {
            Py_ssize_t middle = low + (high - low) / 2;
            if (is_less(&most[middle], &self->entries[i]))
                low = middle + 1;
            else
                high = middle;
        }
        if (!failed && low == PyTuple_GET_SIZE(bounds))
            continue;
        if (failed || (counted = counts(self, &self->entries[i])) < 0) {
            Py_DECREF(found);
            return NULL;
        }
        if (counted == 0)
            continue;
        word = place << 8 | (uint64_t)low;
        memcpy(out + count++ * (Py_ssize_t)sizeof word, &word, sizeof word);
    }
    _PyBytes_Resize(&found, count * (Py_ssize_t)sizeof(uint64_t));
    return found;
}

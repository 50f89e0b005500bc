/* OffsetHeap: see offset_heap.h. */
#include "offset_heap.h"
#include <stdlib.h>

int by_entry(const void *a, const void *b) { return is_less(a, b) ? -1 : is_less(b, a); }

static void sift_up(heap_entry_t *entries, size_t at)
{
    heap_entry_t entry = entries[at];
    while (at > 0 && is_less(&entry, &entries[(at - 1) / 2])) {
        entries[at] = entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    entries[at] = entry;
}

static void sift_down(heap_entry_t *entries, size_t used, size_t at)
{
    heap_entry_t entry = entries[at];
    size_t child;
    while ((child = 2 * at + 1) < used) {
        if (child + 1 < used && is_less(&entries[child + 1], &entries[child]))
            child++;
        if (!is_less(&entries[child], &entry))
            break;
        entries[at] = entries[child];
        at = child;
    }
    entries[at] = entry;
}

static void heapify(heap_entry_t *entries, size_t used)
{
    size_t at;
    for (at = used / 2; at-- > 0;)
        sift_down(entries, used, at);
}

/* The last entry takes the place of the first, which is mostly far down: the hole goes to the bottom, then the entry up from there.
 * Where a large heap is not in the processor's cache, what is two levels down is fetched meanwhile. */
static void pop_first(OffsetHeap *self)
{
    heap_entry_t *entries = self->entries, moved = entries[--self->used];
    size_t used = self->used, at = 0, child;
    while ((child = 2 * at + 1) < used) {
        __builtin_prefetch(&entries[4 * at + 3 < used ? 4 * at + 3 : at]);
        __builtin_prefetch(&entries[4 * at + 6 < used ? 4 * at + 6 : at]);
        child += child + 1 < used && is_less(&entries[child + 1], &entries[child]);
        entries[at] = entries[child];
        at = child;
    }
    if (used) {
        entries[at] = moved;
        sift_up(entries, at);
    }
}

static int reserve(OffsetHeap *self, size_t more)
{
    size_t room = self->room ? self->room : 64;
    heap_entry_t *entries;
    while (room < self->used + more)
        room += room / 2;
    if (room == self->room)
        return 0;
    if ((entries = realloc(self->entries, room * sizeof *entries)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->entries = entries;
    self->room = room;
    return 0;
}

/* ── numbers ── */

int read_offset(PyObject *given, uint64_t *offset)
{
    unsigned long long value = PyLong_AsUnsignedLongLong(given);
    if (value == (unsigned long long)-1 && PyErr_Occurred())
        return -1;
    if (value >= OFFSET_LIMIT) {
        PyErr_SetString(PyExc_OverflowError, "an offset has 56 bits");
        return -1;
    }
    *offset = value;
    return 0;
}

int read_number(PyObject *given, heap_entry_t *entry)
{
    PyObject *bits, *top;
    entry->high = 0;
    entry->low = PyLong_AsUnsignedLongLong(given);
    if (entry->low != (uint64_t)-1 || !PyErr_Occurred())
        return 0;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError))
        return -1;
    PyErr_Clear();
    if ((bits = PyLong_FromLong(64)) == NULL)
        return -1;
    top = PyNumber_Rshift(given, bits);
    Py_DECREF(bits);
    if (top == NULL)
        return -1;
    entry->high = PyLong_AsUnsignedLongLong(top);
    Py_DECREF(top);
    if (entry->high == (uint64_t)-1 && PyErr_Occurred())
        return -1;
    entry->low = PyLong_AsUnsignedLongLongMask(given);
    return entry->low == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *number_of(const heap_entry_t *entry)
{
    PyObject *high, *low, *bits, *shifted = NULL, *found = NULL;
    if (entry->high == 0)
        return PyLong_FromUnsignedLongLong(entry->low);
    high = PyLong_FromUnsignedLongLong(entry->high);
    low = PyLong_FromUnsignedLongLong(entry->low);
    bits = PyLong_FromLong(64);
    if (high != NULL && low != NULL && bits != NULL && (shifted = PyNumber_Lshift(high, bits)) != NULL)
        found = PyNumber_Or(shifted, low);
    Py_XDECREF(high);
    Py_XDECREF(low);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    return found;
}

PyObject *pair_of(const heap_entry_t *entry)
{
    PyObject *number = number_of(entry), *offset, *pair;
    if (number == NULL)
        return NULL;
    offset = PyLong_FromUnsignedLongLong(entry->offset);
    pair = offset == NULL ? NULL : PyTuple_Pack(2, number, offset);
    Py_DECREF(number);
    Py_XDECREF(offset);
    return pair;
}

/* Whether an entry counts; -1: an error. */
int counts(OffsetHeap *self, const heap_entry_t *entry)
{
    PyObject *offset, *number;
    heap_entry_t current;
    if (!set_has(&self->members, entry->offset))
        return 0;
    if (PyDict_GET_SIZE(self->changed) == 0)
        return 1;
    if ((offset = PyLong_FromUnsignedLongLong(entry->offset)) == NULL)
        return -1;
    number = PyDict_GetItemWithError(self->changed, offset);
    Py_DECREF(offset);
    if (number == NULL)
        return PyErr_Occurred() ? -1 : 1;
    if (read_number(number, &current) < 0)
        return -1;
    return current.high == entry->high && current.low == entry->low;
}

/* Drop what does not count. Entries that are there twice stay, unless they are many. */
static int sweep(OffsetHeap *self)
{
    size_t kept = 0, i;
    int found;
    for (i = 0; i < self->used; i++) {
        if ((found = counts(self, &self->entries[i])) < 0)
            return -1;
        if (found)
            self->entries[kept++] = self->entries[i];
    }
    self->used = kept;
    if (kept <= (size_t)self->members.length + STALE_MIN) {
        heapify(self->entries, kept);
        return 0;
    }
    qsort(self->entries, kept, sizeof *self->entries, by_entry);
    for (i = kept = 0; i < self->used; i++)
        if (kept == 0 || !is_same(&self->entries[kept - 1], &self->entries[i]))
            self->entries[kept++] = self->entries[i];
    self->used = kept;
    return 0;
}

static int sweep_if_stale(OffsetHeap *self)
{
    return self->used > 2 * (size_t)self->members.length + STALE_MIN ? sweep(self) : 0;
}

/* ── what is added and removed ── */

static PyObject *heap_add(OffsetHeap *self, PyObject *args, PyObject *names)
{
    static char *fields[] = {"offset", "number", "again", NULL};
    PyObject *offset, *number;
    heap_entry_t entry;
    int again;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO$p", fields, &offset, &number, &again))
        return NULL;
    if (read_offset(offset, &entry.offset) < 0 || read_number(number, &entry) < 0 || reserve(self, 1) < 0)
        return NULL;
    if (set_add_run(&self->members, entry.offset, entry.offset + 1) < 0)
        return NULL;
    if (again && PyDict_SetItem(self->changed, offset, number) < 0)
        return NULL;
    self->entries[self->used] = entry;
    sift_up(self->entries, self->used++);
    if (sweep_if_stale(self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* add_run(first, priorities, least_first): offsets from `first` on, by the ranks of these priorities. */
static PyObject *heap_add_run(OffsetHeap *self, PyObject *args)
{
    PyObject *first_given, *given, *priorities, *found = NULL;
    uint64_t first;
    Py_ssize_t count, i;
    size_t before = self->used;
    int least_first;
    if (!PyArg_ParseTuple(args, "OOp", &first_given, &given, &least_first) || read_offset(first_given, &first) < 0)
        return NULL;
    if ((priorities = PySequence_Fast(given, "priorities are a sequence")) == NULL)
        return NULL;
    count = PySequence_Fast_GET_SIZE(priorities);
    if (first + (uint64_t)count > OFFSET_LIMIT) {
        PyErr_SetString(PyExc_OverflowError, "an offset has 56 bits");
        goto done;
    }
    if (reserve(self, (size_t)count) < 0)
        goto done;
    for (i = 0; i < count; i++) {
        long long priority = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(priorities, i));
        if (priority == -1 && PyErr_Occurred())
            goto done;
        self->entries[before + (size_t)i] = (heap_entry_t){
            0, least_first ? (uint64_t)priority ^ (uint64_t)1 << 63 : (uint64_t)INT64_MAX - (uint64_t)priority,
            first + (uint64_t)i};
    }
    if (set_add_run(&self->members, first, first + (uint64_t)count) < 0)
        goto done;
    for (i = 0; i < count; i++)
        sift_up(self->entries, self->used++);
    if (sweep_if_stale(self) == 0)
        found = Py_NewRef(Py_None);
done:
    Py_DECREF(priorities);
    return found;
}

static int discard(OffsetHeap *self, PyObject *given)
{
    uint64_t offset;
    if (read_offset(given, &offset) < 0)
        return -1;
    if (PyDict_GET_SIZE(self->changed) && PyDict_Contains(self->changed, given) > 0 &&
        PyDict_DelItem(self->changed, given) < 0)
        return -1;
    return set_discard(&self->members, offset);
}

static PyObject *heap_discard(OffsetHeap *self, PyObject *given)
{
    int found = discard(self, given);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* discard_pairs(pairs): remove the offsets that pairs begin with; a list of the pairs whose offset was there. */
static PyObject *heap_discard_pairs(OffsetHeap *self, PyObject *given)
{
    PyObject *pairs, *held;
    Py_ssize_t i;
    if ((pairs = PySequence_Fast(given, "pairs are a sequence")) == NULL)
        return NULL;
    held = PyList_New(0);
    for (i = 0; held != NULL && i < PySequence_Fast_GET_SIZE(pairs); i++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(pairs, i);
        int found = -1;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) < 1)
            PyErr_SetString(PyExc_TypeError, "a pair is a tuple");
        else
            found = discard(self, PyTuple_GET_ITEM(pair, 0));
        if (found < 0 || (found && PyList_Append(held, pair) < 0))
            Py_CLEAR(held);
    }
    Py_DECREF(pairs);
    return held;
}

/* ── what is at the top ── */

static PyObject *heap_first(OffsetHeap *self, PyObject *unused)
{
    (void)unused;
    while (self->used) {
        int found = counts(self, &self->entries[0]);
        if (found < 0)
            return NULL;
        if (found)
            return pair_of(&self->entries[0]);
        pop_first(self);
    }
    Py_RETURN_NONE;
}

/* The next entry that counts and is not `before`, whose twin may follow it; 0: there is none, -1: an error. It is gone. */
static int take_next(OffsetHeap *self, const heap_entry_t *before, heap_entry_t *taken)
{
    int found = 0;
    while (self->used && found == 0) {
        *taken = self->entries[0];
        found = is_same(taken, before) ? 0 : counts(self, taken);
        pop_first(self);
    }
    return found;
}

static PyObject *heap_take(OffsetHeap *self, PyObject *given)
{
    Py_ssize_t count = PyLong_AsSsize_t(given);
    PyObject *taken, *pair;
    heap_entry_t entry = {0, 0, OFFSET_LIMIT}, before;
    int found = 1;
    if ((count == -1 && PyErr_Occurred()) || (taken = PyList_New(0)) == NULL)
        return NULL;
    while (PyList_GET_SIZE(taken) < count && (before = entry, found = take_next(self, &before, &entry)) > 0) {
        if ((pair = pair_of(&entry)) == NULL || PyList_Append(taken, pair) < 0)
            found = -1; /* an entry is lost: only without memory */
        Py_XDECREF(pair);
        if (found < 0)
            break;
    }
    if (found < 0)
        Py_CLEAR(taken);
    return taken;
}

/* take_granted(count, least_first): a tuple of (offset, priority). */
static PyObject *heap_take_granted(OffsetHeap *self, PyObject *args)
{
    Py_ssize_t count, used = 0;
    int least_first, found = 1;
    PyObject *taken;
    heap_entry_t entry = {0, 0, OFFSET_LIMIT}, before;
    if (!PyArg_ParseTuple(args, "np", &count, &least_first))
        return NULL;
    count = count < self->members.length ? count : self->members.length;
    if ((taken = PyTuple_New(count < 0 ? 0 : count)) == NULL)
        return NULL;
    while (used < count && (before = entry, found = take_next(self, &before, &entry)) > 0) {
        uint64_t priority = least_first ? entry.low ^ (uint64_t)1 << 63 : (uint64_t)INT64_MAX - entry.low;
        PyObject *pair = Py_BuildValue("(KL)", (unsigned long long)entry.offset, (long long)priority);
        if (pair == NULL) {
            found = -1;
            break;
        }
        PyTuple_SET_ITEM(taken, used++, pair);
    }
    if (found < 0)
        Py_CLEAR(taken);
    else if (used < count)
        _PyTuple_Resize(&taken, used);
    return taken;
}

static PyObject *heap_entry_count(OffsetHeap *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromSize_t(self->used);
}

/* ── all of it ── */

static PyObject *heap_entries(OffsetHeap *self, PyObject *unused)
{
    (void)unused;
    return PyBytes_FromStringAndSize((const char *)self->entries, (Py_ssize_t)(self->used * sizeof *self->entries));
}

static PyObject *heap_chunks(OffsetHeap *self, PyObject *unused)
{
    PyObject *found = PyDict_New();
    uint64_t *numbers = set_numbers(&self->members);
    size_t i;
    (void)unused;
    for (i = 0; found != NULL && numbers != NULL && i < self->members.used; i++) {
        const chunk_t *chunk = set_chunk(&self->members, numbers[i], 0);
        PyObject *number = PyLong_FromUnsignedLongLong(numbers[i]);
        PyObject *bits = PyBytes_FromStringAndSize((const char *)chunk->bits, CHUNK_BYTES);
        if (number == NULL || bits == NULL || PyDict_SetItem(found, number, bits) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
        Py_XDECREF(bits);
    }
    if (numbers == NULL)
        Py_CLEAR(found);
    free(numbers);
    return found;
}

/* take_over(entries, chunks, changed): everything at once, into a heap that is empty. Entries may be in any order. */
static PyObject *heap_take_over(OffsetHeap *self, PyObject *args)
{
    Py_buffer rows;
    PyObject *chunks, *changed, *number, *bits;
    Py_ssize_t at = 0;
    size_t i;
    if (!PyArg_ParseTuple(args, "y*O!O!", &rows, &PyDict_Type, &chunks, &PyDict_Type, &changed))
        return NULL;
    if (rows.len % (Py_ssize_t)sizeof(heap_entry_t) || self->used || self->members.length) {
        PyErr_SetString(PyExc_ValueError, "whole entries, into an empty heap");
        goto failed;
    }
    if (reserve(self, (size_t)rows.len / sizeof(heap_entry_t)) < 0)
        goto failed;
    memcpy(self->entries, rows.buf, (size_t)rows.len);
    self->used = (size_t)rows.len / sizeof(heap_entry_t);
    for (i = 1; i < self->used; i++)
        if (is_less(&self->entries[i], &self->entries[(i - 1) / 2]))
            break;
    if (i < self->used)
        heapify(self->entries, self->used);
    while (PyDict_Next(chunks, &at, &number, &bits)) {
        unsigned long long value = PyLong_AsUnsignedLongLong(number);
        chunk_t *chunk;
        uint32_t count = 0;
        if (value == (unsigned long long)-1 && PyErr_Occurred())
            goto failed;
        if (value >= OFFSET_LIMIT >> CHUNK_BITS || !PyBytes_Check(bits) || PyBytes_GET_SIZE(bits) != CHUNK_BYTES) {
            PyErr_Format(PyExc_ValueError, "piece %R is none", number);
            goto failed;
        }
        if ((chunk = set_chunk(&self->members, value, 1)) == NULL)
            goto failed;
        memcpy(chunk->bits, PyBytes_AS_STRING(bits), CHUNK_BYTES);
        for (i = 0; i < CHUNK_BYTES; i++)
            count += (uint32_t)__builtin_popcount(chunk->bits[i]);
        if (count == 0) {
            PyErr_Format(PyExc_ValueError, "piece %R has no offsets", number);
            goto failed;
        }
        chunk->count = count;
        self->members.length += count;
    }
    Py_SETREF(self->changed, Py_NewRef(changed));
    PyBuffer_Release(&rows);
    Py_RETURN_NONE;
failed:
    PyBuffer_Release(&rows);
    return NULL;
}

/* offsets_from(start, most): the offsets from `start` on, in order. */
static PyObject *heap_offsets_from(OffsetHeap *self, PyObject *args)
{
    unsigned long long start;
    Py_ssize_t most;
    PyObject *found;
    uint64_t *numbers;
    size_t i;
    if (!PyArg_ParseTuple(args, "Kn", &start, &most) || (numbers = set_numbers(&self->members)) == NULL)
        return NULL;
    found = PyList_New(0);
    for (i = 0; found != NULL && i < self->members.used && PyList_GET_SIZE(found) < most; i++) {
        const chunk_t *chunk = set_chunk(&self->members, numbers[i], 0);
        uint64_t offset = numbers[i] << CHUNK_BITS, end = offset + (1 << CHUNK_BITS);
        if (end <= start)
            continue;
        for (offset = offset < start ? start : offset; offset < end && PyList_GET_SIZE(found) < most; offset++)
            if (chunk->bits[(offset & IN_CHUNK) >> 3] >> (offset & 7) & 1) {
                PyObject *each = PyLong_FromUnsignedLongLong(offset);
                if (each == NULL || PyList_Append(found, each) < 0) {
                    Py_XDECREF(each);
                    Py_CLEAR(found);
                    break;
                }
                Py_DECREF(each);
            }
    }
    free(numbers);
    return found;
}

static PyObject *heap_changed(OffsetHeap *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self->changed);
}

static Py_ssize_t heap_length(OffsetHeap *self) { return self->members.length; }

static int heap_contains(OffsetHeap *self, PyObject *given)
{
    unsigned long long offset = PyLong_AsUnsignedLongLong(given);
    if (offset == (unsigned long long)-1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    return set_has(&self->members, offset);
}

static PyObject *heap_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    OffsetHeap *self = (OffsetHeap *)type->tp_alloc(type, 0);
    (void)args;
    (void)names;
    if (self != NULL && (self->changed = PyDict_New()) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void heap_dealloc(OffsetHeap *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(self->entries);
    set_clear(&self->members);
    Py_XDECREF(self->changed);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))heap_add, METH_VARARGS | METH_KEYWORDS, "Add an offset, or change its number."},
    {"add_run", (PyCFunction)heap_add_run, METH_VARARGS, "Add offsets from one on, by the ranks of priorities."},
    {"discard", (PyCFunction)heap_discard, METH_O, "Remove an offset; whether it was there."},
    {"discard_pairs", (PyCFunction)heap_discard_pairs, METH_O, "Remove offsets; the pairs whose offset was there."},
    {"first", (PyCFunction)heap_first, METH_NOARGS, "The number and offset at the top."},
    {"take", (PyCFunction)heap_take, METH_O, "Numbers and offsets from the top, whose entries are gone."},
    {"take_granted", (PyCFunction)heap_take_granted, METH_VARARGS, "The same as offsets and priorities."},
    {"peek", (PyCFunction)heap_peek, METH_O, "Numbers and offsets from the top; they stay."},
    {"bound", (PyCFunction)heap_bound, METH_O, "What about so many entries are not above."},
    {"bounds", (PyCFunction)heap_bounds, METH_VARARGS, "The same for parts of a count."},
    {"offsets_within", (PyCFunction)heap_offsets_within, METH_VARARGS, "Offsets of entries that are not above a bound."},
    {"words_within", (PyCFunction)heap_words_within, METH_VARARGS, "Places and buckets of entries by bounds."},
    {"entry_count", (PyCFunction)heap_entry_count, METH_NOARGS, "How many entries there are, stale ones too."},
    {"entries", (PyCFunction)heap_entries, METH_NOARGS, "All entries, as rows of three words."},
    {"chunks", (PyCFunction)heap_chunks, METH_NOARGS, "The offsets, as pieces of a bitmap."},
    {"take_over", (PyCFunction)heap_take_over, METH_VARARGS, "Entries, pieces and changed numbers of another heap."},
    {"offsets_from", (PyCFunction)heap_offsets_from, METH_VARARGS, "Offsets from one on, in order."},
    {"changed_numbers", (PyCFunction)heap_changed, METH_NOARGS, "Numbers of offsets that were here before."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, heap_new},       {Py_tp_dealloc, heap_dealloc},     {Py_tp_methods, methods},
    {Py_sq_length, heap_length}, {Py_sq_contains, heap_contains},   {0, NULL},
};

static PyType_Spec spec = {
    "holdfast._native.OffsetHeap", sizeof(OffsetHeap), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots,
};

PyObject *offset_heap_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &spec, NULL); }

/* The queue of a WAL's writer: appends, from the event loop to the writer's thread, and what became of them, back.
 *
 * A thread that needs the interpreter for each group waits for it twice: to begin, and to say that it is done; meanwhile the disk
 * stands still, and so does everybody who waits for it. `serve` writes groups of plain appends without it. The one rule: whatever is not
 * plain (large, copied, first of its file, seen by a failpoint), and whatever goes wrong, is left to the caller, holdfast.log.wal.writer,
 * whose own way of writing a group gives the same bytes.
 *
 * What is reported comes out of `drain` in the order in which it happened. No Python object is made or let go of under the lock. */
#include "append_queue.h"

#ifdef __linux__
#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { SOURCE_AT = 3, ENTRY_ITEMS = 5, FRAME_ITEMS = 11 };

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void free_append(append_t *append)
{
    for (Py_ssize_t at = 0; at < append->parts; at++)
        PyBuffer_Release(&append->payload[at]);
    Py_XDECREF(append->entry);
    PyMem_Free(append);
}

static void free_appends(append_t *append)
{
    for (append_t *next; append != NULL; append = next) {
        next = append->next;
        free_append(append);
    }
}

/* The entries of appends, which are let go of; NULL: there is no memory. */
static PyObject *entries_of(append_t *append, Py_ssize_t count)
{
    PyObject *entries = PyList_New(count);

    for (Py_ssize_t at = 0; entries != NULL && at < count; at++) {
        append_t *next = append->next;
        PyList_SET_ITEM(entries, at, Py_NewRef(append->entry));
        free_append(append);
        append = next;
    }
    return entries;
}

static PyObject *positions_of(const append_t *append, Py_ssize_t count)
{
    PyObject *positions = PyList_New(count);

    for (Py_ssize_t at = 0; positions != NULL && at < count; at++, append = append->next) {
        PyObject *position = PyLong_FromLongLong(append->position);
        if (position == NULL)
            Py_CLEAR(positions);
        else
            PyList_SET_ITEM(positions, at, position);
    }
    return positions;
}

/* ── the loop's side ── */

/* What of a head is known before the frame has its place, and its payload; -1: an exception is set. */
static int prepare(append_t *append, PyObject *frame)
{
    PyObject *topic = PyTuple_GET_ITEM(frame, 0), *payload = PyTuple_GET_ITEM(frame, 5), *checksum = PyTuple_GET_ITEM(frame, 8);
    uint8_t *head = append->head;
    long long epoch = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 2)), base = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 3));
    long long partition = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 1)), count = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 4));
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(frame, 6));

    append->known_crc = checksum != Py_None;
    append->crc = append->known_crc ? (uint32_t)PyLong_AsUnsignedLongMask(checksum) : 0;
    if (PyErr_Occurred())
        return -1;
    if (!PyBytes_Check(topic) || PyBytes_GET_SIZE(topic) != TOPIC_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a topic id has 16 bytes");
        return -1;
    }
    append->kind = (int)kind;
    head[VERSION_AT] = FRAME_VERSION;
    head[KIND_AT] = (uint8_t)kind;
    memcpy(head + TOPIC_AT, PyBytes_AS_STRING(topic), TOPIC_BYTES);
    store_number(head + EPOCH_AT, (uint64_t)epoch, 8);
    store_number(head + BASE_AT, (uint64_t)base, 8);
    store_number(head + PARTITION_AT, (uint64_t)partition, 4);
    store_number(head + COUNT_AT, (uint64_t)count, 4);
    store_number(head + PAYLOAD_BYTES_AT, (uint64_t)(append->size - FRAME_BYTES), 4);
    for (Py_ssize_t at = 0, given = PySequence_Fast_GET_SIZE(payload), held = 0; at < given; at++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(payload, at), &append->payload[at], PyBUF_SIMPLE) < 0)
            return -1;
        append->parts++;
        held += append->payload[at].len;
        if (at == given - 1 && held != append->size - FRAME_BYTES) {
            PyErr_SetString(PyExc_ValueError, "the payload has another size than its append says");
            return -1;
        }
    }
    return 0;
}

static int is_payload(PyObject *payload)
{
    return (PyTuple_Check(payload) || PyList_Check(payload)) && PySequence_Fast_GET_SIZE(payload) >= 1 &&
           PySequence_Fast_GET_SIZE(payload) <= PARTS_MAX;
}

/* append(entry, plain): queue a PendingAppend; not `plain`: the writer's own code has to write it. */
static PyObject *queue_append(AppendQueue *self, PyObject *const *args, Py_ssize_t given)
{
    PyObject *entry = given == 2 ? args[0] : NULL, *frame;
    int plain = given == 2 ? PyObject_IsTrue(args[1]) : 0, wake;
    Py_ssize_t parts = 0, size;
    append_t *append;

    if (entry == NULL || !PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != ENTRY_ITEMS) {
        PyErr_SetString(PyExc_TypeError, "append has a pending append and whether it is plain");
        return NULL;
    }
    frame = PyTuple_GET_ITEM(entry, 0);
    size = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 1));
    if (plain < 0 || (size == -1 && PyErr_Occurred()))
        return NULL;
    plain = plain && size >= FRAME_BYTES && size <= PLAIN_BYTES_MAX && PyTuple_GET_ITEM(entry, SOURCE_AT) == Py_None &&
            PyTuple_Check(frame) && PyTuple_GET_SIZE(frame) == FRAME_ITEMS && is_payload(PyTuple_GET_ITEM(frame, 5));
    if (plain)
        parts = PySequence_Fast_GET_SIZE(PyTuple_GET_ITEM(frame, 5));
    append = PyMem_Calloc(1, sizeof(append_t) + (size_t)parts * sizeof(Py_buffer));
    if (append == NULL)
        return PyErr_NoMemory();
    append->entry = Py_NewRef(entry);
    append->size = size;
    append->plain = plain;
    if (plain && prepare(append, frame) < 0) {
        free_append(append);
        return NULL;
    }
    append->pushed_ns = now_ns();
    pthread_mutex_lock(&self->lock);
    *(self->first == NULL ? &self->first : &self->last->next) = append;
    self->last = append;
    self->count++;
    wake = self->waiting == FOR_APPENDS;
    pthread_mutex_unlock(&self->lock);
    if (wake)
        pthread_cond_signal(&self->changed);
    Py_RETURN_NONE;
}

/* close(): nothing more will be appended. */
static PyObject *queue_close(AppendQueue *self, PyObject *unused)
{
    (void)unused;
    pthread_mutex_lock(&self->lock);
    self->closing = 1;
    pthread_mutex_unlock(&self->lock);
    pthread_cond_broadcast(&self->changed);
    Py_RETURN_NONE;
}

static append_t *taken_first(AppendQueue *self)
{
    append_t *first;

    pthread_mutex_lock(&self->lock);
    first = self->first;
    if (first != NULL) {
        self->first = first->next;
        self->count--;
    }
    pthread_mutex_unlock(&self->lock);
    return first;
}

static PyObject *queue_popleft(AppendQueue *self, PyObject *unused)
{
    append_t *first = taken_first(self);
    PyObject *entry;

    (void)unused;
    if (first == NULL) {
        PyErr_SetString(PyExc_IndexError, "the queue is empty");
        return NULL;
    }
    entry = Py_NewRef(first->entry);
    free_append(first);
    return entry;
}

/* take_all(): all entries, in order. */
static PyObject *queue_take_all(AppendQueue *self, PyObject *unused)
{
    append_t *first;
    Py_ssize_t count;
    PyObject *entries;

    (void)unused;
    pthread_mutex_lock(&self->lock);
    first = self->first;
    count = self->count;
    self->first = self->last = NULL;
    self->count = 0;
    pthread_mutex_unlock(&self->lock);
    entries = entries_of(first, count);
    if (entries == NULL)
        free_appends(first);
    return entries;
}

/* A group as the loop wants it. Its appends are let go of. */
static PyObject *group_object(AppendQueue *self, group_t *group)
{
    PyObject *items[8], *positions = positions_of(group->appends, group->count);
    PyObject *entries = positions == NULL ? NULL : entries_of(group->appends, group->count);
    int64_t numbers[] = {group->first_lsn, group->size, group->generation, group->handover_ns, group->write_ns, group->synced_ns};
    int at = 0;

    if (entries == NULL) {
        free_appends(group->appends);
        Py_XDECREF(positions);
        return NULL;
    }
    items[at++] = entries;
    for (int n = 0; n < 3; n++)
        items[at++] = PyLong_FromLongLong(numbers[n]);
    items[at++] = positions;
    for (int n = 3; n < 6; n++)
        items[at++] = PyLong_FromLongLong(numbers[n]);
    return tuple_of_type(self->group_type, items, 8);
}

/* The groups behind the reports that are in `to` already; -1: an exception is set, and what was not moved is lost with the process. */
static int move_groups(AppendQueue *self, group_t *group, PyObject *to)
{
    int failed = 0;

    for (group_t *next; group != NULL; group = next) {
        PyObject *made = group_object(self, group);
        failed = made == NULL || PyList_Append(to, made) < 0 || failed;
        Py_XDECREF(made);
        next = group->next;
        PyMem_RawFree(group);
    }
    return failed ? -1 : 0;
}

static group_t *taken_groups(AppendQueue *self)
{
    group_t *done;

    pthread_mutex_lock(&self->lock);
    done = self->done;
    self->done = self->last_done = NULL;
    pthread_mutex_unlock(&self->lock);
    return done;
}

/* drain(): what was reported since the last time: what `report` was given, and groups that were written. */
static PyObject *queue_drain(AppendQueue *self, PyObject *unused)
{
    PyObject *fresh = PyList_New(0), *reports;
    uint64_t signals;
    ssize_t got;
    int wake;

    (void)unused;
    if (fresh == NULL)
        return NULL;
    do
        got = read(self->descriptor, &signals, sizeof signals);
    while (got < 0 && errno == EINTR);
    pthread_mutex_lock(&self->lock);
    self->signalled = 0;
    wake = self->waiting == FOR_THE_LOOP;
    pthread_mutex_unlock(&self->lock);
    if (wake)
        pthread_cond_signal(&self->changed);
    reports = self->reports;
    self->reports = fresh;
    if (move_groups(self, taken_groups(self), reports) < 0)
        Py_CLEAR(reports);
    return reports;
}

/* ── the thread's side ── */

static void signal_loop(AppendQueue *self)
{
    static const uint64_t one = 1;
    int needed;

    pthread_mutex_lock(&self->lock);
    needed = !self->signalled;
    self->signalled = 1;
    pthread_mutex_unlock(&self->lock);
    if (needed)
        while (write(self->descriptor, &one, sizeof one) < 0 && errno == EINTR)
            ;
}

/* report(item): it comes out of `drain`, behind all groups that were written before. */
static PyObject *queue_report(AppendQueue *self, PyObject *item)
{
    if (PyList_Append(self->reports, item) < 0)
        return NULL;
    signal_loop(self);
    Py_RETURN_NONE;
}

static void wait_locked(AppendQueue *self, int what)
{
    self->waiting = what;
    pthread_cond_wait(&self->changed, &self->lock);
    self->waiting = 0;
}

static Py_ssize_t queue_length(AppendQueue *self)
{
    Py_ssize_t count;

    pthread_mutex_lock(&self->lock);
    count = self->count;
    pthread_mutex_unlock(&self->lock);
    return count;
}

/* wait(): True once something is queued, False if there will never be. */
static PyObject *queue_wait(AppendQueue *self, PyObject *unused)
{
    int found = queue_length(self) > 0; /* who lets go of the interpreter waits for it afterwards */

    (void)unused;
    if (!found) {
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&self->lock);
        while (self->first == NULL && !self->closing)
            wait_locked(self, FOR_APPENDS);
        found = self->first != NULL;
        pthread_mutex_unlock(&self->lock);
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(found);
}

static int may_write(const wal_file_t *file, const append_t *append, int64_t total)
{
    return append != NULL && append->plain && (append->kind <= MARK_KIND || file->replicated) &&
           total + append->size <= file->file_bytes - file->position &&
           (total == 0 || total + append->size <= file->group_bytes_max);
}

/* Whether there is nothing queued that is not for us. */
static int is_ours(AppendQueue *self, const wal_file_t *file)
{
    int ours;

    pthread_mutex_lock(&self->lock);
    ours = self->first == NULL || may_write(file, self->first, 0);
    pthread_mutex_unlock(&self->lock);
    return ours;
}

/* The next group, once something is queued and the loop knows of the group before; NULL: there will never be, or it is not for us.
 * A group that the loop has not heard of costs nobody anything: while it is behind, the next one grows. */
static group_t *next_group(AppendQueue *self, const wal_file_t *file)
{
    group_t *group = PyMem_RawCalloc(1, sizeof(group_t));
    append_t *last = NULL;

    if (group == NULL)
        return NULL;
    pthread_mutex_lock(&self->lock);
    while (!self->closing && (self->first == NULL || (self->signalled && may_write(file, self->first, 0))))
        wait_locked(self, self->first == NULL ? FOR_APPENDS : FOR_THE_LOOP);
    group->appends = self->first;
    while (may_write(file, self->first, group->size)) {
        last = self->first;
        group->size += last->size;
        group->count++;
        self->first = last->next;
        self->count--;
    }
    if (last != NULL)
        last->next = NULL;
    pthread_mutex_unlock(&self->lock);
    if (last != NULL)
        return group;
    PyMem_RawFree(group);
    return NULL;
}

/* To the front of the queue: the writer's own code will see what is wrong. */
static void put_back(AppendQueue *self, group_t *group)
{
    append_t *last = group->appends;

    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&self->lock);
    last->next = self->first;
    if (self->first == NULL)
        self->last = last;
    self->first = group->appends;
    self->count += group->count;
    pthread_mutex_unlock(&self->lock);
    PyMem_RawFree(group);
}

static void handed_back(AppendQueue *self, group_t *group)
{
    pthread_mutex_lock(&self->lock);
    *(self->done == NULL ? &self->done : &self->last_done->next) = group;
    self->last_done = group;
    pthread_mutex_unlock(&self->lock);
    signal_loop(self);
}

/* Write groups until one needs the interpreter. A group that failed is returned, with `error`. */
static group_t *serve(AppendQueue *self, wal_file_t *file, int *error)
{
    group_t *group;

    *error = 0;
    while ((group = next_group(self, file)) != NULL) {
        int64_t began_ns = now_ns();

        group->handover_ns = began_ns - group->appends->pushed_ns;
        *error = write_group(file, group);
        if (*error == EINVAL || *error == EOPNOTSUPP) { /* a system that cannot write blocks any more */
            *error = 0;
            put_back(self, group);
            return NULL;
        }
        if (*error != 0)
            return group;
        group->synced_ns = now_ns();
        group->write_ns = group->synced_ns - began_ns;
        handed_back(self, group);
    }
    return NULL;
}

/* Groups that the loop has not taken yet become reports, before any other. They are made first: a collection may run meanwhile, and
 * the loop drain what is there. */
static int report_groups(AppendQueue *self)
{
    PyObject *groups = PyList_New(0);
    int failed = groups == NULL || move_groups(self, taken_groups(self), groups) < 0;

    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(groups); at++)
        failed = PyList_Append(self->reports, PyList_GET_ITEM(groups, at)) < 0;
    if (!failed && PyList_GET_SIZE(groups) > 0)
        signal_loop(self);
    Py_XDECREF(groups);
    return failed ? -1 : 0;
}

/* What `serve` returns. */
static PyObject *served(const wal_file_t *file, group_t *failed, int error)
{
    PyObject *positions = failed == NULL ? PyList_New(0) : positions_of(failed->appends, failed->count);
    PyObject *entries = failed == NULL ? PyList_New(0) : entries_of(failed->appends, failed->count);

    PyMem_RawFree(failed);
    return Py_BuildValue("(Ly#LiNN)", (long long)file->position, file->memory, (Py_ssize_t)(file->position % BLOCK_BYTES),
                         (long long)file->lsn, error, entries, positions);
}

/* serve(descriptor, memory, begun, position, file_bytes, mark, lsn, generation, replicated, group_bytes_max): write groups of plain
 * appends at the position of a file, behind `begun`, which its last block holds, until there is one that is not plain, does not fit
 * or fails, or the queue is closed. (position, what its block holds then, next LSN, errno, entries and positions of the group that
 * failed). */
static PyObject *queue_serve(AppendQueue *self, PyObject *args)
{
    wal_file_t file = {0};
    Py_buffer memory, begun, mark;
    long long position, file_bytes, lsn, generation, group_bytes_max;
    int error = 0, sound;
    group_t *failed = NULL;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "iw*y*LLy*LLpL", &file.descriptor, &memory, &begun, &position, &file_bytes, &mark, &lsn, &generation,
                          &file.replicated, &group_bytes_max))
        return NULL;
    sound = position >= 0 && begun.len == position % BLOCK_BYTES && mark.len == MARK_BYTES &&
            memory.len >= 2 * BLOCK_BYTES + PLAIN_BYTES_MAX && group_bytes_max > 0 && (uintptr_t)memory.buf % BLOCK_BYTES == 0;
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "the block's beginning, a mark, and aligned memory that has room are needed");
    } else {
        file.memory = memory.buf;
        file.position = position;
        file.file_bytes = file_bytes - file_bytes % BLOCK_BYTES; /* the end of the last block that is written is inside the file */
        file.mark = mark.buf;
        file.lsn = lsn;
        file.generation = generation;
        file.group_bytes_max =
            group_bytes_max < memory.len - 2 * BLOCK_BYTES ? group_bytes_max : (int64_t)(memory.len - 2 * BLOCK_BYTES);
        memcpy(file.memory, begun.buf, (size_t)begun.len);
        if (is_ours(self, &file)) {
            Py_BEGIN_ALLOW_THREADS
            failed = serve(self, &file, &error);
            Py_END_ALLOW_THREADS
        }
        if (report_groups(self) == 0)
            result = served(&file, failed, error);
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&begun);
    PyBuffer_Release(&mark);
    return result;
}

/* ── the type ── */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    AppendQueue *self;
    PyObject *group_type;

    if ((names != NULL && PyDict_GET_SIZE(names) > 0) || !PyArg_ParseTuple(args, "O", &group_type))
        return NULL;
    if (!is_tuple_type(group_type)) {
        PyErr_SetString(PyExc_TypeError, "a group is a tuple");
        return NULL;
    }
    self = (AppendQueue *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->group_type = (PyTypeObject *)Py_NewRef(group_type);
    self->reports = PyList_New(0);
    self->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->descriptor < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    if (self->descriptor < 0 || self->reports == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void queue_dealloc(AppendQueue *self)
{
    PyTypeObject *type = Py_TYPE(self);

    free_appends(self->first);
    for (group_t *group = self->done, *next; group != NULL; group = next) {
        next = group->next;
        free_appends(group->appends);
        PyMem_RawFree(group);
    }
    if (self->descriptor >= 0)
        close(self->descriptor);
    Py_XDECREF(self->reports);
    Py_XDECREF((PyObject *)self->group_type);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Of the first append: what it is, or when it was pushed. Nobody but the writer takes it away. */
static PyObject *first_of(AppendQueue *self, void *pushed)
{
    append_t *first;

    pthread_mutex_lock(&self->lock);
    first = self->first;
    pthread_mutex_unlock(&self->lock);
    if (pushed != NULL)
        return PyLong_FromLongLong(first == NULL ? 0 : first->pushed_ns);
    return Py_NewRef(first == NULL ? Py_None : first->entry);
}

static PyObject *get_descriptor(AppendQueue *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->descriptor);
}

static int first_pushed;

static PyGetSetDef queue_properties[] = {
    {"descriptor", (getter)get_descriptor, NULL, "It can be read when there is something to drain.", NULL},
    {"first", (getter)first_of, NULL, "The next append, or None.", NULL},
    {"pushed_at_ns", (getter)first_of, NULL, "When it was pushed.", &first_pushed},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef queue_methods[] = {
    {"append", (PyCFunction)(void (*)(void))queue_append, METH_FASTCALL, "Queue an append."},
    {"close", (PyCFunction)queue_close, METH_NOARGS, "Nothing more will be appended."},
    {"drain", (PyCFunction)queue_drain, METH_NOARGS, "What was reported, and groups that were written, in order."},
    {"popleft", (PyCFunction)queue_popleft, METH_NOARGS, "Take the next append."},
    {"take_all", (PyCFunction)queue_take_all, METH_NOARGS, "Take all."},
    {"report", (PyCFunction)queue_report, METH_O, "Let it come out of `drain`."},
    {"serve", (PyCFunction)queue_serve, METH_VARARGS, "Write groups until one needs the interpreter."},
    {"wait", (PyCFunction)queue_wait, METH_NOARGS, "Wait until something is queued; False: there will never be."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_new, queue_new},         {Py_tp_dealloc, queue_dealloc},       {Py_tp_methods, queue_methods},
    {Py_sq_length, queue_length},   {Py_tp_getset, queue_properties},     {0, NULL},
};

static PyType_Spec queue_spec = {
    "holdfast._native.AppendQueue", sizeof(AppendQueue), 0, Py_TPFLAGS_DEFAULT, queue_slots,
};

PyObject *append_queue_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &queue_spec, NULL); }
#endif

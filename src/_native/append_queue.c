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
#include <unistd.h>

/* ── the loop's side ── */

/* append(entry, plain): queue a PendingAppend; not `plain`: the writer's own code has to write it. */
static PyObject *queue_append(AppendQueue *self, PyObject *const *args, Py_ssize_t given)
{
    int plain = given == 2 ? PyObject_IsTrue(args[1]) : -1, wake;
    append_t *append;

    if (given != 2)
        PyErr_SetString(PyExc_TypeError, "append has two arguments");
    append = plain < 0 ? NULL : new_append(args[0], plain);
    if (append == NULL)
        return NULL;
    pthread_mutex_lock(&self->lock);
    *(self->first == NULL ? &self->first : &self->last->next) = append;
    self->last = append;
    self->count++;
    self->size += append->size;
    wake = self->waiting == FOR_APPENDS || (self->waiting == FOR_THE_LOOP && self->size >= self->enough);
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
        self->size -= first->size;
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
    self->size = 0;
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

void signal_loop(AppendQueue *self)
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

void wait_locked(AppendQueue *self, int what)
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

/* Groups that the loop has not taken yet become reports, before any other. They are made first: a collection may run meanwhile, and
 * the loop drain what is there. */
int report_groups(AppendQueue *self)
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

/* ── the type ── */

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"", NULL};
    AppendQueue *self;
    PyObject *group_type;

    if (!PyArg_ParseTupleAndKeywords(args, names, "O", words, &group_type))
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

/* The reader of a connection: it takes runs out of what has arrived. */
#include "produce_run.h"
#include "request.h"
#include <structmember.h>

/* take(data, at, most): the run at `at`, of at most `most` requests, or None. */
static PyObject *reader_take(RunReader *self, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer data;
    Py_ssize_t at, most;
    ProduceRun *run = NULL;

    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "take has three arguments");
        return NULL;
    }
    at = PyLong_AsSsize_t(args[1]);
    most = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (at >= 0 && at <= data.len)
        run = read_run(self, (const uint8_t *)data.buf + at, (const uint8_t *)data.buf + data.len, most);
    PyBuffer_Release(&data);
    return run != NULL ? (PyObject *)run : none_if_odd();
}

/* Count a run; whether there is room for another one. -1: an exception is set. */
static int count_run(RunReader *self, const ProduceRun *run)
{
    Py_ssize_t used = add_to(self->host, self->used_name, run->size);
    Py_ssize_t bytes = add_to(self->connection, self->bytes_name, run->size);
    Py_ssize_t requests = add_to(self->connection, self->requests_name, run->count);

    if (PyErr_Occurred())
        return -1;
    return used < self->used_bytes_max && bytes < self->in_flight_bytes_max && requests < self->requests_max;
}

static int hand_over(RunReader *self, ProduceRun *run)
{
    int first = PyList_GET_SIZE(self->inbox) == 0, room = count_run(self, run);
    PyObject *paused;

    if (room < 0 || called(self->in_flight_append, (PyObject *)run) < 0 || PyList_Append(self->inbox, (PyObject *)run) < 0 ||
        (first && called(self->on_first, NULL) < 0))
        return -1;
    if (room) {
        self->state = ARMED;
        return 0;
    }
    paused = PyObject_CallMethodNoArgs(self->connection, self->flow_name); /* it is not read before there is room */
    Py_XDECREF(paused);
    return paused == NULL ? -1 : 0;
}

/* buffer_updated(bytes): so many have arrived in the scratch memory. An armed reader takes them if they are exactly one run, like the
 * last one; whatever else they are goes to `receive`, and the connection is busy until it arms the reader again. */
static PyObject *reader_updated(RunReader *self, PyObject *bytes)
{
    Py_ssize_t size = PyLong_AsSsize_t(bytes);
    const uint8_t *start = self->scratch.buf;
    ProduceRun *run = NULL;

    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (self->state == ARMED && size > 0 && size <= self->scratch.len && self->connection != NULL) {
        Py_ssize_t requests = number_of(self->connection, self->requests_name);

        if (!PyErr_Occurred())
            run = read_run(self, start, start + size, self->requests_max - requests);
    }
    self->state = BUSY;
    if (run != NULL && run->call != NULL && run->size == size) {
        int failed = hand_over(self, run);
        Py_DECREF(run);
        if (failed)
            return NULL;
        Py_RETURN_NONE;
    }
    Py_XDECREF(run);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return NULL;
        PyErr_Clear();
    }
    return PyObject_CallOneArg(self->receive, bytes);
}

/* get_buffer(sizehint): where bytes are to arrive. A connection that is armed has begun no frame of its own. */
static PyObject *reader_buffer(RunReader *self, PyObject *hint)
{
    return self->state == BUSY ? PyObject_CallOneArg(self->buffer, hint) : Py_NewRef(self->shared);
}

static int reader_traverse(RunReader *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->run_type);
    Py_VISIT(self->connection);
    Py_VISIT(self->api);
    Py_VISIT(self->receive);
    Py_VISIT(self->buffer);
    Py_VISIT(self->in_flight);
    Py_VISIT(self->in_flight_append);
    Py_VISIT(self->write);
    Py_VISIT(self->unsent);
    Py_VISIT(self->host);
    Py_VISIT(self->inbox);
    Py_VISIT(self->on_first);
    Py_VISIT(self->stopwatch);
    Py_VISIT(self->call);
    return 0;
}

/* The scratch memory, the inbox and what is called stay: a cycle ends with the connection. */
static int reader_clear(RunReader *self)
{
    self->state = BUSY;
    Py_CLEAR(self->connection);
    Py_CLEAR(self->call);
    Py_CLEAR(self->write);
    Py_CLEAR(self->unsent);
    return 0;
}

static void reader_dealloc(RunReader *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    reader_clear(self);
    if (self->scratch.obj != NULL)
        PyBuffer_Release(&self->scratch);
    Py_XDECREF(self->run_type);
    Py_XDECREF(self->api);
    Py_XDECREF(self->receive);
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->shared);
    Py_XDECREF(self->in_flight);
    Py_XDECREF(self->in_flight_append);
    Py_XDECREF(self->inbox);
    Py_XDECREF(self->on_first);
    Py_XDECREF(self->stopwatch);
    Py_XDECREF(self->host);
    Py_XDECREF(self->used_name);
    Py_XDECREF(self->bytes_name);
    Py_XDECREF(self->requests_name);
    Py_XDECREF(self->active_name);
    Py_XDECREF(self->flow_name);
    Py_XDECREF(self->client_id);
    Py_XDECREF(self->named);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyTypeObject *run_type_of(PyTypeObject *reader_type)
{
    PyObject *module = PyType_GetModule(reader_type);

    return module == NULL ? NULL : (PyTypeObject *)PyObject_GetAttrString(module, "ProduceRun");
}

static int intern_names(RunReader *self)
{
    return (self->used_name = PyUnicode_InternFromString("used_bytes")) != NULL &&
           (self->bytes_name = PyUnicode_InternFromString("_bytes")) != NULL &&
           (self->requests_name = PyUnicode_InternFromString("_requests")) != NULL &&
           (self->active_name = PyUnicode_InternFromString("active_at_ms")) != NULL &&
           (self->flow_name = PyUnicode_InternFromString("_update_flow_control")) != NULL;
}

static int is_shared(RunReader *self, PyObject *memory)
{
    if (PyObject_GetBuffer(memory, &self->scratch, PyBUF_WRITABLE) == 0)
        return 1;
    PyErr_SetString(PyExc_TypeError, "the scratch memory has to be writable");
    return 0;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"connection", "host", "api", "receive", "buffer", "in_flight", "inbox", "on_first", "scratch", "stopwatch",
                            "versions", "requests_max", "bytes_max", "in_flight_bytes_max", "used_bytes_max", NULL};
    RunReader *self = (RunReader *)type->tp_alloc(type, 0);
    PyObject *connection, *host, *api, *receive, *buffer, *in_flight, *inbox, *on_first, *shared, *stopwatch;

    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, names, "$OOOOOOO!OOO(llll)nnnn", words, &connection, &host, &api, &receive, &buffer,
                                     &in_flight, &PyList_Type, &inbox, &on_first, &shared, &stopwatch, &self->versions[0],
                                     &self->versions[1], &self->versions[2], &self->versions[3], &self->requests_max,
                                     &self->bytes_max, &self->in_flight_bytes_max, &self->used_bytes_max) ||
        !is_shared(self, shared) || !intern_names(self) || (self->run_type = run_type_of(type)) == NULL ||
        (self->in_flight_append = PyObject_GetAttrString(in_flight, "append")) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->connection = Py_NewRef(connection);
    self->host = Py_NewRef(host);
    self->api = Py_NewRef(api);
    self->receive = Py_NewRef(receive);
    self->buffer = Py_NewRef(buffer);
    self->shared = Py_NewRef(shared);
    self->in_flight = Py_NewRef(in_flight);
    self->inbox = Py_NewRef(inbox);
    self->on_first = Py_NewRef(on_first);
    self->stopwatch = Py_NewRef(stopwatch);
    return (PyObject *)self;
}

static PyMethodDef reader_methods[] = {
    {"take", (PyCFunction)(void (*)(void))reader_take, METH_FASTCALL, "The run at a place of some bytes, or None."},
    {"get_buffer", (PyCFunction)reader_buffer, METH_O, "Where bytes are to arrive."},
    {"buffer_updated", (PyCFunction)reader_updated, METH_O, "Take what has arrived, or let the connection receive it."},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_armed(RunReader *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->state == ARMED);
}

static int set_armed(RunReader *self, PyObject *value, void *unused)
{
    int armed = value == NULL ? 0 : PyObject_IsTrue(value);

    (void)unused;
    if (armed < 0)
        return -1;
    self->state = armed ? ARMED : BUSY;
    return 0;
}

static PyGetSetDef reader_properties[] = {
    {"armed", (getter)get_armed, (setter)set_armed, "Whether nothing is in flight but runs, so that another may be handed over.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef reader_members[] = {
    {"write", T_OBJECT, offsetof(RunReader, write), 0, "Of the transport."},
    {"unsent", T_OBJECT, offsetof(RunReader, unsent), 0, "How many bytes the transport has not sent yet."},
    {"call", T_OBJECT, offsetof(RunReader, call), 0, "What requests like those of the last run are like."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_clear, reader_clear},
    {Py_tp_methods, reader_methods},
    {Py_tp_members, reader_members},
    {Py_tp_getset, reader_properties},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    "holdfast._native.RunReader", sizeof(RunReader), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, reader_slots,
};

PyObject *run_reader_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &reader_spec, NULL); }

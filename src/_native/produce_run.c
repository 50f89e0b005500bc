/* Runs: whole Produce requests, one behind the other, that differ in nothing but their correlation ids and one batch each.
 *
 * With many connections a read brings one request, and what it costs to get it to the log is what a server can do. So a run is one
 * object from the read to the response, and a connection at rest, which is `armed`, hands its run over without any Python: see
 * holdfast.gateways.kafka.connection. There is no twin: without the extension requests are read one by one. */
#include "produce_run.h"
#include "request.h"
#include <structmember.h>

enum { PRODUCE_KEY = 0, BATCH_LENGTH_AT = 8, RUN_MAX = 1024 };

/* ── the run ── */

typedef struct {
    PyObject_HEAD
    PyObject *connection, *reader, *api, *call, *client_id, *named, *correlations, *payload, *span, *response;
    Py_ssize_t size, count;
    long long arrived_ns;
    long version, acks, timeout_ms, partition;
    char done;
} ProduceRun;

static int run_traverse(ProduceRun *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->connection);
    Py_VISIT(self->reader);
    Py_VISIT(self->api);
    Py_VISIT(self->call);
    Py_VISIT(self->span);
    Py_VISIT(self->response);
    return 0;
}

static int run_clear(ProduceRun *self)
{
    Py_CLEAR(self->connection);
    Py_CLEAR(self->reader);
    Py_CLEAR(self->api);
    Py_CLEAR(self->call);
    Py_CLEAR(self->span);
    Py_CLEAR(self->response);
    return 0;
}

static void run_dealloc(ProduceRun *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    run_clear(self);
    Py_XDECREF(self->client_id);
    Py_XDECREF(self->named);
    Py_XDECREF(self->correlations);
    Py_XDECREF(self->payload);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

#define OF_RUN(field) offsetof(ProduceRun, field)

static PyMemberDef run_members[] = {
    {"connection", T_OBJECT, OF_RUN(connection), READONLY, "Whose run it is."},
    {"api", T_OBJECT, OF_RUN(api), READONLY, "Produce."},
    {"call", T_OBJECT, OF_RUN(call), 0, "What all its requests are like; None: the last run of the connection was not like it."},
    {"client_id", T_OBJECT, OF_RUN(client_id), READONLY, "Of the requests, or None."},
    {"named", T_OBJECT, OF_RUN(named), READONLY, "The topic's name, or its id as bytes."},
    {"correlations", T_OBJECT, OF_RUN(correlations), READONLY, "The correlation id of each request."},
    {"payload", T_OBJECT, OF_RUN(payload), READONLY, "The batches, one behind the other."},
    {"arrived_ns", T_LONGLONG, OF_RUN(arrived_ns), READONLY, "When it was read."},
    {"span", T_OBJECT, OF_RUN(span), 0, "Of its trace."},
    {"response", T_OBJECT, OF_RUN(response), 0, "Until it is sent."},
    {"size", T_PYSSIZET, OF_RUN(size), READONLY, "Bytes of the requests, with their lengths."},
    {"count", T_PYSSIZET, OF_RUN(count), READONLY, "How many requests it is."},
    {"version", T_LONG, OF_RUN(version), READONLY, "Of the requests."},
    {"acks", T_LONG, OF_RUN(acks), READONLY, "Of the requests."},
    {"timeout_ms", T_LONG, OF_RUN(timeout_ms), READONLY, "Of the requests."},
    {"partition", T_LONG, OF_RUN(partition), READONLY, "Of the topic."},
    {"done", T_BOOL, OF_RUN(done), 0, "Whether it has its response."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot run_slots[] = {
    {Py_tp_dealloc, run_dealloc}, {Py_tp_traverse, run_traverse}, {Py_tp_clear, run_clear}, {Py_tp_members, run_members}, {0, NULL},
};

static PyType_Spec run_spec = {
    "holdfast._native.ProduceRun", sizeof(ProduceRun), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, run_slots,
};

PyObject *produce_run_type(PyObject *module) { return PyType_FromModuleAndSpec(module, &run_spec, NULL); }

/* ── its reader ── */

/* Whether the connection is at rest, so that a run may be handed over; or at rest but for one that was. */
enum { BUSY, ARMED, HANDED_OVER };

typedef struct {
    PyObject_HEAD
    PyTypeObject *run_type;
    PyObject *connection, *api, *receive, *in_flight_append, *in_flight_clear, *inbox, *on_first, *stopwatch;
    PyObject *write, *unsent; /* of its transport */
    PyObject *host;           /* whose `used_bytes` are those of all connections' requests */
    PyObject *used_name, *bytes_name, *requests_name, *active_name, *flow_name; /* of attributes of the host and the connection */
    PyObject *call, *client_id, *named;   /* of the last run: the next is likely to be like it */
    Py_buffer scratch;
    long versions[4]; /* the first, the last, the first flexible one, the first with topic ids */
    Py_ssize_t requests_max, bytes_max, used_bytes_max;
    long last_version;
    int state;
} RunReader;

/* What the first request says, up to its records. */
typedef struct {
    const uint8_t *frame, *same, *same_end; /* `same`: from the client's id to the partition's number */
    PyObject *client_id, *named;
    long version, acks, timeout_ms, partition;
} head_t;

/* One whole frame, without its length; 0: there is none at `at`. */
static int whole_frame(const uint8_t *at, const uint8_t *end, int64_t bytes_max, const uint8_t **frame_end)
{
    int64_t size = end - at < 4 ? -1 : (int32_t)load_u32(at);

    if (size < HEADER_BYTES || size > bytes_max || end - at - 4 < size)
        return 0;
    *frame_end = at + 4 + size;
    return 1;
}

/* A string, or the one before if that says the same. NULL, with or without an exception: the latter is odd. */
static PyObject *string_like(reader_t *r, PyObject *before)
{
    reader_t peek = *r;
    int64_t size = length(&peek, 2);
    Py_ssize_t before_size;
    const char *text = before == NULL || !PyUnicode_CheckExact(before) ? NULL : PyUnicode_AsUTF8AndSize(before, &before_size);

    if (text != NULL && !peek.odd && size == before_size && memcmp(peek.at, text, (size_t)size) == 0) {
        r->at = peek.at + size;
        return Py_NewRef(before);
    }
    PyErr_Clear();
    return string(r);
}

static PyObject *topic_id(reader_t *r, PyObject *before)
{
    const uint8_t *id = take(r, 16);

    if (id != NULL && before != NULL && PyBytes_CheckExact(before) && memcmp(PyBytes_AS_STRING(before), id, 16) == 0)
        return Py_NewRef(before);
    return id == NULL ? NULL : PyBytes_FromStringAndSize((const char *)id, 16);
}

/* 0: not what a run is made of. */
static int read_head(const RunReader *self, reader_t *r, head_t *head)
{
    reader_t header;
    long key = (long)number(r, 2);

    head->version = (long)number(r, 2);
    if (r->odd || key != PRODUCE_KEY || head->version < self->versions[0] || head->version > self->versions[1])
        return 0;
    number(r, 4); /* the correlation id */
    head->same = r->at;
    header = *r; /* its strings are never compact */
    head->client_id = string_like(&header, self->client_id);
    r->at = header.at;
    if (head->client_id == NULL || header.odd)
        return 0;
    r->flexible = head->version >= self->versions[2];
    if (r->flexible && number(r, 1) != 0)
        return 0; /* tags */
    if (length(r, 2) != -1)
        return 0; /* transactional */
    head->acks = (long)number(r, 2);
    head->timeout_ms = (long)number(r, 4);
    if (r->odd || (head->acks != -1 && head->acks != 1) || length(r, 4) != 1)
        return 0;
    head->named = head->version >= self->versions[3] ? topic_id(r, self->named) : string_like(r, self->named);
    if (head->named == NULL || head->named == Py_None || length(r, 4) != 1)
        return 0;
    head->partition = (long)number(r, 4);
    head->same_end = r->at;
    return !r->odd;
}

/* The records of a request, which have to be one batch, and nothing behind them; NULL: something else. */
static const uint8_t *one_batch(reader_t *r, int64_t *size)
{
    const uint8_t *records;

    *size = length(r, 4);
    records = r->odd || *size < HEADER_BYTES ? NULL : take(r, *size);
    if (records == NULL || (int64_t)load_u32(records + BATCH_LENGTH_AT) + LENGTH_COVERS_FROM != *size)
        return NULL;
    for (int tag = 0; r->flexible && tag < 3; tag++)
        if (number(r, 1) != 0)
            return NULL;
    return !r->odd && r->at == r->end ? records : NULL;
}

/* The correlation ids and the batches of the requests; 0: an exception is set. */
static int fill(ProduceRun *run, const int32_t *ids, const uint8_t *const *batches, const int64_t *sizes, Py_ssize_t total)
{
    char *to;

    run->correlations = PyList_New(run->count);
    run->payload = PyByteArray_FromStringAndSize(NULL, total);
    if (run->correlations == NULL || run->payload == NULL)
        return 0;
    to = PyByteArray_AS_STRING(run->payload);
    for (Py_ssize_t at = 0; at < run->count; at++) {
        PyObject *id = PyLong_FromLong(ids[at]);
        if (id == NULL)
            return 0;
        PyList_SET_ITEM(run->correlations, at, id);
        memcpy(to, batches[at], (size_t)sizes[at]);
        to += sizes[at];
    }
    return 1;
}

static ProduceRun *new_run(RunReader *self, const head_t *head, Py_ssize_t size, Py_ssize_t count)
{
    ProduceRun *run = (ProduceRun *)self->run_type->tp_alloc(self->run_type, 0);
    int alike = self->call != NULL && head->version == self->last_version && head->client_id == self->client_id;

    PyObject *now;

    if (run == NULL)
        return NULL;
    run->connection = Py_XNewRef(self->connection);
    run->reader = Py_NewRef((PyObject *)self);
    run->api = Py_XNewRef(self->api);
    run->call = alike ? Py_NewRef(self->call) : NULL;
    run->client_id = Py_NewRef(head->client_id);
    run->named = Py_NewRef(head->named);
    run->version = head->version;
    run->acks = head->acks;
    run->timeout_ms = head->timeout_ms;
    run->partition = head->partition;
    run->size = size;
    run->count = count;
    now = PyObject_CallNoArgs(self->stopwatch);
    run->arrived_ns = now == NULL ? -1 : PyLong_AsLongLong(now);
    Py_XDECREF(now);
    if (run->arrived_ns == -1 && PyErr_Occurred())
        Py_CLEAR(run);
    return run;
}

static void remember(RunReader *self, const head_t *head)
{
    if (head->client_id != self->client_id || head->version != self->last_version)
        Py_CLEAR(self->call);
    Py_XSETREF(self->client_id, Py_NewRef(head->client_id));
    Py_XSETREF(self->named, Py_NewRef(head->named));
    self->last_version = head->version;
}

/* The requests from the first on that are like it; NULL without an exception: the first has not one batch. */
static ProduceRun *run_of(RunReader *self, const head_t *head, reader_t *r, const uint8_t *end, Py_ssize_t most)
{
    const uint8_t *batches[RUN_MAX], *start = head->frame - 4, *frame = start, *frame_end = r->end;
    int64_t sizes[RUN_MAX];
    int32_t ids[RUN_MAX];
    Py_ssize_t count = 0, total = 0, same = head->same_end - head->same;
    ProduceRun *run;

    while ((batches[count] = one_batch(r, &sizes[count])) != NULL) {
        ids[count] = (int32_t)load_u32(frame + 8);
        total += (Py_ssize_t)sizes[count++];
        frame = frame_end;
        if (count == most || count == RUN_MAX || !whole_frame(frame, end, self->bytes_max, &frame_end) ||
            frame_end - frame < 12 + same || memcmp(frame + 4, head->frame, 4) != 0 ||
            memcmp(frame + 12, head->same, (size_t)same) != 0)
            break;
        r->at = frame + 12 + same;
        r->end = frame_end;
    }
    if (count == 0)
        return NULL;
    run = new_run(self, head, (Py_ssize_t)(frame - start), count);
    if (run != NULL && !fill(run, ids, batches, sizes, total))
        Py_CLEAR(run);
    return run;
}

/* The run that some bytes begin with. NULL, with or without an exception: the latter is none. */
static ProduceRun *read_run(RunReader *self, const uint8_t *start, const uint8_t *end, Py_ssize_t most)
{
    reader_t r = {0};
    head_t head = {0};
    ProduceRun *run = NULL;

    if (most > 0 && whole_frame(start, end, self->bytes_max, &r.end)) {
        r.start = r.at = head.frame = start + 4;
        if (read_head(self, &r, &head) && (run = run_of(self, &head, &r, end, most)) != NULL)
            remember(self, &head);
    }
    Py_XDECREF(head.client_id);
    Py_XDECREF(head.named);
    return run;
}

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

static int set_number(PyObject *connection, PyObject *name, Py_ssize_t value)
{
    PyObject *number = PyLong_FromSsize_t(value);
    int failed = number == NULL || PyObject_SetAttr(connection, name, number) < 0;

    Py_XDECREF(number);
    return failed ? -1 : 0;
}

static int called(PyObject *callable, PyObject *argument)
{
    PyObject *result = argument == NULL ? PyObject_CallNoArgs(callable) : PyObject_CallOneArg(callable, argument);

    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Count a run; how many bytes all requests take now, or -1. */
static Py_ssize_t count_bytes(RunReader *self, const ProduceRun *run)
{
    PyObject *used = PyObject_GetAttr(self->host, self->used_name);
    Py_ssize_t before = used == NULL ? -1 : PyLong_AsSsize_t(used);

    Py_XDECREF(used);
    if ((before == -1 && PyErr_Occurred()) || set_number(self->host, self->used_name, before + run->size) < 0 ||
        set_number(self->connection, self->bytes_name, run->size) < 0 ||
        set_number(self->connection, self->requests_name, run->count) < 0)
        return -1;
    return before + run->size;
}

static int hand_over(RunReader *self, ProduceRun *run)
{
    int first = PyList_GET_SIZE(self->inbox) == 0;
    Py_ssize_t used = count_bytes(self, run);
    PyObject *paused;

    if (PyErr_Occurred() || called(self->in_flight_append, (PyObject *)run) < 0 || PyList_Append(self->inbox, (PyObject *)run) < 0 ||
        (first && called(self->on_first, NULL) < 0))
        return -1;
    if (used < self->used_bytes_max) {
        self->state = HANDED_OVER;
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
    if (self->state == ARMED && size > 0 && size <= self->scratch.len && self->connection != NULL)
        run = read_run(self, start, start + size, self->requests_max);
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

static int reader_traverse(RunReader *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->run_type);
    Py_VISIT(self->connection);
    Py_VISIT(self->api);
    Py_VISIT(self->receive);
    Py_VISIT(self->in_flight_append);
    Py_VISIT(self->in_flight_clear);
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
    Py_XDECREF(self->in_flight_append);
    Py_XDECREF(self->in_flight_clear);
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

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"connection", "host", "api", "receive", "in_flight", "inbox", "on_first", "scratch", "stopwatch",
                            "versions", "requests_max", "bytes_max", "used_bytes_max", NULL};
    RunReader *self = (RunReader *)type->tp_alloc(type, 0);
    PyObject *connection, *host, *api, *receive, *in_flight, *inbox, *on_first, *stopwatch;

    if (self == NULL)
        return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, names, "$OOOOOO!Ow*O(llll)nnn", words, &connection, &host, &api, &receive, &in_flight,
                                     &PyList_Type, &inbox, &on_first, &self->scratch, &stopwatch, &self->versions[0],
                                     &self->versions[1], &self->versions[2], &self->versions[3], &self->requests_max,
                                     &self->bytes_max, &self->used_bytes_max) ||
        !intern_names(self) || (self->run_type = run_type_of(type)) == NULL ||
        (self->in_flight_append = PyObject_GetAttrString(in_flight, "append")) == NULL ||
        (self->in_flight_clear = PyObject_GetAttrString(in_flight, "clear")) == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    self->connection = Py_NewRef(connection);
    self->host = Py_NewRef(host);
    self->api = Py_NewRef(api);
    self->receive = Py_NewRef(receive);
    self->inbox = Py_NewRef(inbox);
    self->on_first = Py_NewRef(on_first);
    self->stopwatch = Py_NewRef(stopwatch);
    return (PyObject *)self;
}

static PyMethodDef reader_methods[] = {
    {"take", (PyCFunction)(void (*)(void))reader_take, METH_FASTCALL, "The run at a place of some bytes, or None."},
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
    {"armed", (getter)get_armed, (setter)set_armed, "Whether the connection is at rest, so that a run may be handed over.", NULL},
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

/* Whether all items of a list are runs; 0: an exception is set. */
static int are_runs(PyObject *runs)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(runs); at++)
        if (Py_TYPE(PyList_GET_ITEM(runs, at))->tp_dealloc != (destructor)run_dealloc) {
            PyErr_SetString(PyExc_TypeError, "a list of runs is needed");
            return 0;
        }
    return 1;
}

/* alike(runs, kind): whether all are for one partition, and, if `kind`, are answered in one way: same acks, timeout and version. */
PyObject *runs_alike(PyObject *module, PyObject *args)
{
    PyObject *runs;
    int kind, alike = 1;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &runs, &kind) || !are_runs(runs))
        return NULL;
    for (Py_ssize_t at = 1; at < PyList_GET_SIZE(runs) && alike == 1; at++) {
        const ProduceRun *first = (const ProduceRun *)PyList_GET_ITEM(runs, 0), *run = (const ProduceRun *)PyList_GET_ITEM(runs, at);
        alike = run->partition == first->partition;
        if (alike && kind)
            alike = run->acks == first->acks && run->timeout_ms == first->timeout_ms && run->version == first->version;
        if (alike && run->named != first->named)
            alike = PyObject_RichCompareBool(run->named, first->named, Py_EQ);
    }
    return alike < 0 ? NULL : PyBool_FromLong(alike);
}

/* ── responses ── */

/* What became of several runs. */
typedef struct {
    PyObject *now_ms;
    long long now_ns;
    int arm;
    Py_ssize_t unread_min;
    PyObject *left;   /* (run, response or exception): those that were not sent */
    PyObject *unread; /* (connection, bytes or exception): whose client does not read, or that do not say */
    Py_ssize_t bytes, requests;
    long long took_ns, shortest_ns, longest_ns;
} sending_t;

static int noted(PyObject *list, PyObject *one, PyObject *other)
{
    PyObject *pair = PyTuple_Pack(2, one, other);
    int failed = pair == NULL || PyList_Append(list, pair) < 0;

    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

/* The exception that is set, as what became of one. */
static int note_raised(PyObject *list, PyObject *one)
{
    PyObject *type, *value, *trace;
    int failed;

    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL && value != NULL)
        PyException_SetTraceback(value, trace);
    failed = value == NULL || noted(list, one, value) < 0;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return failed ? -1 : 0;
}

static int note_unread(sending_t *sending, RunReader *reader)
{
    PyObject *unsent = PyObject_CallNoArgs(reader->unsent);
    Py_ssize_t bytes = unsent == NULL ? -1 : PyLong_AsSsize_t(unsent);
    int failed = 0;

    if (bytes == -1 && PyErr_Occurred())
        failed = note_raised(sending->unread, reader->connection);
    else if (bytes > sending->unread_min)
        failed = noted(sending->unread, reader->connection, unsent);
    Py_XDECREF(unsent);
    return failed;
}

static void count(sending_t *sending, const ProduceRun *run)
{
    long long took_ns = sending->now_ns - run->arrived_ns;

    if (sending->requests == 0 || took_ns < sending->shortest_ns)
        sending->shortest_ns = took_ns;
    if (sending->requests == 0 || took_ns > sending->longest_ns)
        sending->longest_ns = took_ns;
    sending->took_ns += took_ns * run->count;
    sending->requests += run->count;
    sending->bytes += run->size;
}

/* The response to a run that is alone in flight of its connection, which is at rest then. */
static int send_alone(sending_t *sending, ProduceRun *run, RunReader *reader, PyObject *response)
{
    reader->state = sending->arm ? ARMED : BUSY; /* before it is written: a transport that is full makes it busy */
    if (called(reader->write, response) < 0) {
        reader->state = BUSY;
        return note_raised(sending->left, (PyObject *)run);
    }
    run->done = 1;
    count(sending, run);
    if (called(reader->in_flight_clear, NULL) < 0 || set_number(reader->connection, reader->bytes_name, 0) < 0 ||
        set_number(reader->connection, reader->requests_name, 0) < 0 ||
        PyObject_SetAttr(reader->connection, reader->active_name, sending->now_ms) < 0)
        return -1;
    return note_unread(sending, reader);
}

static int send_all(sending_t *sending, PyObject *runs, PyObject *responses)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(runs) && at < PyList_GET_SIZE(responses); at++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(runs, at)), *response = Py_NewRef(PyList_GET_ITEM(responses, at));
        ProduceRun *run = (ProduceRun *)item;
        RunReader *reader = (RunReader *)run->reader;
        int alone = reader != NULL && reader->state == HANDED_OVER && reader->connection != NULL && reader->write != NULL &&
                    reader->unsent != NULL;
        int failed = alone ? send_alone(sending, run, reader, response) : noted(sending->left, item, response);

        Py_DECREF(item);
        Py_DECREF(response);
        if (failed)
            return -1;
    }
    return 0;
}

/* send_responses(runs, responses, now_ms, now_ns, arm, unread_min): send each run its responses. Those whose connection has anything
 * else to do are left to the caller, with their response; so are those that cannot be written, with the exception. The answer is
 * (bytes and number of the requests that were answered, what they took in sum, at least, at most, [(run, response or exception)] that
 * are left, [(connection, bytes or exception)] with more than `unread_min` bytes that the client does not read, or that do not say). */
PyObject *send_responses(PyObject *module, PyObject *args)
{
    sending_t sending = {0};
    PyObject *runs, *responses, *found = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!OLpn", &PyList_Type, &runs, &PyList_Type, &responses, &sending.now_ms, &sending.now_ns,
                          &sending.arm, &sending.unread_min) ||
        !are_runs(runs))
        return NULL;
    sending.left = PyList_New(0);
    sending.unread = PyList_New(0);
    if (sending.left != NULL && sending.unread != NULL && send_all(&sending, runs, responses) == 0)
        found = Py_BuildValue("(nnLLLOO)", sending.bytes, sending.requests, sending.took_ns, sending.shortest_ns,
                              sending.longest_ns, sending.left, sending.unread);
    Py_XDECREF(sending.left);
    Py_XDECREF(sending.unread);
    return found;
}

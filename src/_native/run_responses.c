/* Responses to runs of several connections, sent with one call. */
#include "produce_run.h"

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

/* Whether a run is the first in flight of a connection that has nothing but such runs. -1: an exception is set. */
static int is_next(const ProduceRun *run, RunReader *reader)
{
    PyObject *first;

    if (reader == NULL || reader->state != ARMED || reader->connection == NULL || reader->write == NULL || reader->unsent == NULL)
        return 0;
    if (PySequence_Size(reader->in_flight) <= 0)
        return PyErr_Occurred() ? -1 : 0;
    first = PySequence_GetItem(reader->in_flight, 0);
    Py_XDECREF(first);
    return first == NULL ? -1 : first == (const PyObject *)run;
}

static int send_next(sending_t *sending, ProduceRun *run, RunReader *reader, PyObject *response)
{
    reader->state = sending->arm ? ARMED : BUSY; /* before it is written: a transport that is full makes it busy */
    if (called(reader->write, response) < 0) {
        reader->state = BUSY;
        return note_raised(sending->left, (PyObject *)run);
    }
    run->done = 1;
    count(sending, run);
    add_to(reader->connection, reader->bytes_name, -run->size);
    add_to(reader->connection, reader->requests_name, -run->count);
    if (PyErr_Occurred() || PySequence_DelItem(reader->in_flight, 0) < 0 ||
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
        int next = is_next(run, reader);
        int failed = next == 1 ? send_next(sending, run, reader, response) : next < 0 || noted(sending->left, item, response) < 0;

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

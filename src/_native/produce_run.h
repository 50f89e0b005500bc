/* Runs: whole Produce requests, one behind the other, that differ in nothing but their correlation ids and one batch each.
 *
 * With many connections a read brings one request, and what it costs to get it to the log is what a server can do. So a run is one
 * object from the read to the response, and a connection that is `armed` hands its runs over without any Python: see
 * holdfast.gateways.kafka.connection. There is no twin: without the extension requests are read one by one. */
#ifndef HOLDFAST_PRODUCE_RUN_H
#define HOLDFAST_PRODUCE_RUN_H

#include "batch.h"

typedef struct {
    PyObject_HEAD
    PyObject *connection, *reader, *api, *call, *client_id, *named, *correlations, *payload, *span, *response;
    Py_ssize_t size, count;
    long long arrived_ns;
    long version, acks, timeout_ms, partition;
    char done;
} ProduceRun;

/* Whether a run may be handed over: nothing is in flight of the connection but runs that wait for their response. */
enum { BUSY, ARMED };

typedef struct {
    PyObject_HEAD
    PyTypeObject *run_type;
    PyObject *connection, *api, *receive, *buffer, *shared, *in_flight, *in_flight_append, *inbox, *on_first, *stopwatch;
    PyObject *write, *unsent; /* of its transport */
    PyObject *host; /* whose `used_bytes` are those of all connections' requests */
    PyObject *used_name, *bytes_name, *requests_name, *active_name, *flow_name; /* of attributes of the host and the connection */
    PyObject *call, *client_id, *named; /* of the last run: the next is likely to be like it */
    Py_buffer scratch;
    long versions[4]; /* the first, the last, the first flexible one, the first with topic ids */
    Py_ssize_t requests_max, bytes_max, in_flight_bytes_max, used_bytes_max;
    long last_version;
    int state;
} RunReader;

/* produce_run.c */
PyObject *produce_run_type(PyObject *module);
int are_runs(PyObject *runs);
PyObject *runs_alike(PyObject *module, PyObject *args);

/* run_parser.c: the run that some bytes begin with; NULL, with or without an exception: the latter is none */
ProduceRun *read_run(RunReader *self, const uint8_t *start, const uint8_t *end, Py_ssize_t most);

/* run_reader.c */
PyObject *run_reader_type(PyObject *module);

/* run_responses.c */
PyObject *send_responses(PyObject *module, PyObject *args);

/* Of an attribute; -1, with an exception or without one. */
static inline Py_ssize_t number_of(PyObject *owner, PyObject *name)
{
    PyObject *number = PyObject_GetAttr(owner, name);
    Py_ssize_t value = number == NULL ? -1 : PyLong_AsSsize_t(number);

    Py_XDECREF(number);
    return value;
}

/* What an attribute is then; -1: an exception may be set. Nothing is done while one is set. */
static inline Py_ssize_t add_to(PyObject *owner, PyObject *name, Py_ssize_t more)
{
    Py_ssize_t before = PyErr_Occurred() ? -1 : number_of(owner, name);
    PyObject *number = before == -1 && PyErr_Occurred() ? NULL : PyLong_FromSsize_t(before + more);
    int failed = number == NULL || PyObject_SetAttr(owner, name, number) < 0;

    Py_XDECREF(number);
    return failed ? -1 : before + more;
}

static inline int called(PyObject *callable, PyObject *argument)
{
    PyObject *result = argument == NULL ? PyObject_CallNoArgs(callable) : PyObject_CallOneArg(callable, argument);

    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

#endif

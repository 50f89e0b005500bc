/* The type of runs, and what they have in common. */
#include "produce_run.h"
#include <structmember.h>

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

/* Whether all items of a list are runs; 0: an exception is set. */
int are_runs(PyObject *runs)
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

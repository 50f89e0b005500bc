/* Runs of Produce requests, for the module. */
#ifndef HOLDFAST_PRODUCE_RUN_H
#define HOLDFAST_PRODUCE_RUN_H

#include "batch.h"

PyObject *produce_run_type(PyObject *module);
PyObject *run_reader_type(PyObject *module);
PyObject *runs_alike(PyObject *module, PyObject *args);
PyObject *send_responses(PyObject *module, PyObject *args);

#endif

/* parse_tokens(tokens, kind): what tokens of leases say, as tuples of type `kind`; None if one of them is odd. What a token
 * consists of is written in holdfast.heap.lease_token, its twin. */
#include "batch.h"

enum { TOKEN_VERSION = 1, TOKEN_BYTES = 27, TOKEN_FIELDS = 5 };

PyObject *parse_tokens(PyObject *module, PyObject *args)
{
    PyObject *given, *kind, *tokens, *found;
    Py_ssize_t i;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &given, &kind) || !is_tuple_type(kind))
        return NULL;
    if ((tokens = PySequence_Fast(given, "tokens can be counted")) == NULL)
        return NULL;
    found = PyList_New(PySequence_Fast_GET_SIZE(tokens));
    for (i = 0; found != NULL && i < PyList_GET_SIZE(found); i++) {
        PyObject *token = PySequence_Fast_GET_ITEM(tokens, i), *items[TOKEN_FIELDS], *made;
        const uint8_t *p;
        if (!PyBytes_Check(token) || PyBytes_GET_SIZE(token) != TOKEN_BYTES ||
            (p = (const uint8_t *)PyBytes_AS_STRING(token))[0] != TOKEN_VERSION) {
            Py_SETREF(found, Py_NewRef(Py_None));
            break;
        }
        items[0] = PyLong_FromLong(load_u16(p + 1));
        items[1] = PyLong_FromUnsignedLong(load_u32(p + 3));
        items[2] = PyLong_FromUnsignedLongLong(load_u64(p + 7));
        items[3] = PyLong_FromUnsignedLongLong(load_u64(p + 15));
        items[4] = PyLong_FromUnsignedLong(load_u32(p + 23));
        if ((made = tuple_of_type((PyTypeObject *)kind, items, TOKEN_FIELDS)) == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyObject_GC_UnTrack(made); /* numbers: no cycle goes through it */
        PyList_SET_ITEM(found, i, made);
    }
    Py_DECREF(tokens);
    return found;
}

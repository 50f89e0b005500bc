/* holdfast._native: the record batch kernel at native speed. The twin in Python is holdfast.log.batches.pure; what the
 * functions take and return is written there and in holdfast.log.batches.kernels. */
#include "append_queue.h"
#include "batch.h"
#include "offset_heap.h"
#include "produce_run.h"

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, "The headers of consecutive batches, or the first fault."},
    {"summarize", summarize, METH_VARARGS, "What stored batches are in sum, or the first fault."},
    {"join_blocks", join_blocks, METH_VARARGS, "Batches joined to blocks of a segment, or the first fault."},
    {"check", check, METH_VARARGS, "None when all records of a payload are sound, or the first fault."},
    {"keyless", keyless, METH_VARARGS, "The numbers of the records of a payload that have no key, or the first fault."},
    {"read", read_records, METH_VARARGS, "Records of a payload as tuples, or the first fault."},
    {"read_chosen", read_chosen, METH_VARARGS, "Some records of a payload as tuples, or the first fault."},
    {"write", write_records, METH_VARARGS, "Records as wire bytes, or the first fault."},
    {"write_values", write_values, METH_VARARGS, "Values of one key and time as wire bytes, or the first fault."},
    {"columns", columns, METH_VARARGS, "Records of many batches as the buffers of Arrow columns, or the first fault."},
    {"write_blocks", write_blocks, METH_VARARGS, "Write parts to a descriptor through aligned memory, whole blocks only."},
    {"write_padded", write_padded, METH_VARARGS, "Write parts at a position through aligned memory, padded to a block."},
    {"address", address, METH_O, "Where a buffer lies in memory."},
    {"shorten_time_slice", shorten_time_slice, METH_NOARGS, "Let this thread get a core sooner; whether the kernel took the request."},
    {"joined", joined, METH_VARARGS, "The CRC-32C of two parts one behind the other, from theirs."},
    {"read_blocks", read_blocks, METH_VARARGS, "The blocks of a segment's index, or None if they are wrong."},
    {"pack_blocks", pack_blocks, METH_VARARGS, "The bytes of a segment's index, or None."},
    {"crc32c", crc32c_of, METH_VARARGS, "The CRC-32C of bytes, by the processor's instruction or by a table."},
    {"verify_run", verify_run, METH_VARARGS, "Plain batches of several payloads, verified and joined, or None."},
    {"number_run", number_run, METH_VARARGS, "Write offsets and an epoch into batches; the base offset of each."},
    {"locate_run", locate_run, METH_VARARGS, "Where the batches of a run lie that a read from an offset on returns."},
    {"produce", produce, METH_VARARGS, "A Produce request cut into what it asks for, or None if it is odd."},
    {"message_ids", message_ids, METH_VARARGS, "The ids of messages of a heap partition."},
    {"pack_heap_entries", pack_heap_entries, METH_VARARGS, "Entries of a heap as a frame of a snapshot."},
    {"read_heap_entries", read_heap_entries, METH_VARARGS, "Entries of a heap, of a frame of a snapshot."},
    {"pick", pick, METH_VARARGS, "Copy chosen records of a payload into buffers, or the first fault."},
    {"pick_extents", pick_extents, METH_VARARGS, "Chosen records of several payloads, by bucket, or the first fault."},
    {"picked_messages", picked_messages, METH_VARARGS, "The messages of such records, by offset."},
    {"enqueues_of", enqueues_of, METH_VARARGS, "The messages that records are, or None for each."},
    {"pack_enqueue_keys", pack_enqueue_keys, METH_O, "The keys of the records of plain messages, or None."},
    {"sequence_run", sequence_run, METH_O, "A producer, an epoch and growing numbers, if keys are that, or None."},
    {"drop_older", drop_older, METH_VARARGS, "Drop rows of columns by their time."},
    {"wanted_of", wanted_of, METH_VARARGS, "The offsets that are wanted."},
    {"parse_tokens", parse_tokens, METH_VARARGS, "What tokens of leases say, or None."},
    {"exempt", exempt, METH_O, "Exempt messages from garbage collection."},
    {"stored_bytes", stored_bytes, METH_VARARGS, "What messages take in memory."},
    {"bucket_counts", bucket_counts, METH_VARARGS, "How many of some words are in each bucket of others."},
    {"sorted_words", sorted_words, METH_O, "Words in order."},
    {"responses", responses, METH_VARARGS, "The responses to runs: one again and again, with other correlation ids and offsets."},
    {"runs_alike", runs_alike, METH_VARARGS, "Whether runs are for one partition, and answered in one way."},
    {"send_responses", send_responses, METH_VARARGS, "Send runs their responses; what was sent, and what was not."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyObject *type)
{
    int failed = type == NULL || PyModule_AddObjectRef(module, name, type) < 0;
    Py_XDECREF(type);
    return failed;
}

static int prepare(PyObject *module)
{
    prepare_crc32c();
#ifdef __linux__
    if (add_type(module, "AppendQueue", append_queue_type(module)))
        return -1;
#endif
    return add_type(module, "OffsetHeap", offset_heap_type(module)) || add_type(module, "ProduceRun", produce_run_type(module)) ||
                   add_type(module, "RunReader", run_reader_type(module))
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "holdfast._native", "Record batches at native speed.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }

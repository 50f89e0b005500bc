/* How long a thread may wait for a core that another one has.
 *
 * Since Linux 6.12 a thread may ask for a shorter time slice than the default of some milliseconds. It gets no more of a core, but it gets
 * it sooner: one that wakes up and needs little goes before one that has computed for longer than that. Older kernels take the request
 * and do nothing. */
#include "batch.h"

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLICE_NS = 500 * 1000, RESET_ON_FORK = 1 }; /* shorter ones cost more switches; what a thread starts has the default again */

/* The kernel's `struct sched_attr`, as of Linux 3.14. */
typedef struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline, period;
} attributes_t;

static int shorten(void)
{
    attributes_t attributes = {0};

    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0)
        return 0;
    /* Another policy is somebody's decision, and so is a raised priority, which threads that are started would lose. */
    if (attributes.policy != SCHED_OTHER || attributes.nice < 0)
        return 0;
    attributes.size = sizeof attributes;
    attributes.flags |= RESET_ON_FORK;
    attributes.slice_ns = SLICE_NS;
    return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}
#else
static int shorten(void) { return 0; }
#endif

/* shorten_time_slice(): of this thread; whether the kernel took the request. */
PyObject *shorten_time_slice(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(shorten());
}

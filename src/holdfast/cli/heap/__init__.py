"""`holdfast heap`: heaps, over HTTP."""

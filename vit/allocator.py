"""How a process that only computes should treat the memory it frees: keep it.

A forward pass allocates and frees the same few dozen megabytes again and again. glibc's malloc
gives what is freed at the heap's end back to the system, and the system must clear every page
before it can be used again; on a CPU that can take longer than the mathematics.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 2**30  # bytes that may lie free at the heap's end before any are given back
LARGEST = 2**25  # bytes; malloc takes no larger allocations from the heap, whatever one sets


def keep_freed_memory() -> None:
    """Let malloc reuse freed memory, up to ``KEPT``, for the rest of the process. Other C libraries
    than glibc, on which this has not been measured, are left alone."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT)

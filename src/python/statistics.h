// What it is: the figures of the allocators and of the cache of compiled functions as Python dictionaries.
// Ordering: none. Threads: the caller holds the interpreter's lock. Errors: Python's.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "mojo/cache.h"
#include "mojo/memory_statistics.h"

namespace mojo::python {

pybind11::dict to_dict(const MemoryStatistics& statistics);
pybind11::dict to_dict(const PinnedStatistics& statistics);
pybind11::dict to_dict(const CacheStatistics& statistics);
pybind11::list to_list(const std::vector<SegmentSnapshot>& segments);

}  // namespace mojo::python

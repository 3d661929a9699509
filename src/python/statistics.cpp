#include "statistics.h"

namespace mojo::python {

namespace py = pybind11;

namespace {

py::dict to_dict(const Statistic& statistic) {
  py::dict out;
  out["current"] = statistic.current;
  out["peak"] = statistic.peak;
  out["allocated"] = statistic.allocated;
  out["freed"] = statistic.freed;
  return out;
}

py::dict to_dict(const StatisticArray& statistics) {
  py::dict out;
  out["all"] = to_dict(statistics[0]);
  out["small_pool"] = to_dict(statistics[1]);
  out["large_pool"] = to_dict(statistics[2]);
  return out;
}

py::dict to_dict(const DurationStatistic& statistic) {
  py::dict out;
  out["total"] = statistic.total;
  out["max"] = statistic.max;
  out["min"] = statistic.min;
  out["count"] = statistic.count;
  out["avg"] = statistic.count == 0 ? 0.0 : static_cast<double>(statistic.total) / static_cast<double>(statistic.count);
  return out;
}

const char* name_of(BlockState state) {
  switch (state) {
    case BlockState::allocated: return "allocated";
    case BlockState::pending_free: return "pending_free";
    case BlockState::inactive: break;
  }
  return "inactive";
}

}  // namespace

py::dict to_dict(const MemoryStatistics& statistics) {
  py::dict out;
  out["allocation"] = to_dict(statistics.allocation);
  out["segment"] = to_dict(statistics.segment);
  out["active"] = to_dict(statistics.active);
  out["inactive_split"] = to_dict(statistics.inactive_split);
  out["allocated_bytes"] = to_dict(statistics.allocated_bytes);
  out["reserved_bytes"] = to_dict(statistics.reserved_bytes);
  out["active_bytes"] = to_dict(statistics.active_bytes);
  out["inactive_split_bytes"] = to_dict(statistics.inactive_split_bytes);
  out["requested_bytes"] = to_dict(statistics.requested_bytes);
  out["oversize_allocations"] = to_dict(statistics.oversize_allocations);
  out["oversize_segments"] = to_dict(statistics.oversize_segments);
  out["num_alloc_retries"] = statistics.num_alloc_retries;
  out["num_ooms"] = statistics.num_ooms;
  out["num_sync_all_streams"] = statistics.num_sync_all_streams;
  out["num_device_alloc"] = statistics.num_device_alloc;
  out["num_device_free"] = statistics.num_device_free;
  out["max_split_size"] = statistics.max_split_size;
  return out;
}

py::dict to_dict(const PinnedStatistics& statistics) {
  py::dict out;
  out["active_requests"] = to_dict(statistics.active_requests);
  out["active_bytes"] = to_dict(statistics.active_bytes);
  out["allocations"] = to_dict(statistics.allocations);
  out["allocated_bytes"] = to_dict(statistics.allocated_bytes);
  out["host_alloc_time"] = to_dict(statistics.host_alloc_time);
  out["host_free_time"] = to_dict(statistics.host_free_time);
  out["num_host_alloc"] = statistics.num_host_alloc;
  out["num_host_free"] = statistics.num_host_free;
  return out;
}

py::dict to_dict(const CacheStatistics& statistics) {
  py::dict out;
  out["memory_hits"] = statistics.memory_hits;
  out["disk_hits"] = statistics.disk_hits;
  out["misses"] = statistics.misses;
  out["failures"] = statistics.failures;
  out["compile_milliseconds"] = statistics.compile_milliseconds;
  out["load_milliseconds"] = statistics.load_milliseconds;
  out["written"] = statistics.written;
  out["evicted"] = statistics.evicted;
  out["rejected"] = statistics.rejected;
  out["files"] = statistics.files;
  out["bytes"] = statistics.bytes;
  out["size_limit"] = statistics.size_limit;
  return out;
}

py::list to_list(const std::vector<SegmentSnapshot>& segments) {
  py::list out;
  for (const SegmentSnapshot& segment : segments) {
    py::list blocks;
    for (const BlockSnapshot& block : segment.blocks) {
      py::dict row;
      row["address"] = block.address;
      row["bytes"] = block.bytes;
      row["requested_bytes"] = block.requested_bytes;
      row["state"] = name_of(block.state);
      blocks.append(std::move(row));
    }
    py::dict row;
    row["address"] = segment.address;
    row["bytes"] = segment.bytes;
    row["stream_id"] = segment.stream_id;
    row["large"] = segment.large;
    row["blocks"] = std::move(blocks);
    out.append(std::move(row));
  }
  return out;
}

}  // namespace mojo::python

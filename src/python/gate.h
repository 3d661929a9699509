// What it is: Gate, which holds a stream until it is opened; the tests' instrument.
// Ordering: work queued on the stream after the gate was made runs after it was opened. Holds no thread.
// Threads: any. Errors: those of the runtime; destroying a closed gate leaves an error on the stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "mojo/completion_flag.h"
#include "mojo/device_stream.h"

namespace mojo::python {

class Gate {
 public:
  explicit Gate(DeviceStream stream);

  void open() const { flag_.signal(opened); }
  bool is_open() const noexcept { return flag_.value() == opened; }
  // Whether all work before the gate is complete and the stream stands at it.
  bool held() const noexcept { return reached_->load(std::memory_order_acquire) && !is_open(); }

 private:
  static constexpr std::uint64_t opened = 1;

  CompletionFlag flag_;
  std::shared_ptr<std::atomic<bool>> reached_;  // also the queued task's
};

}  // namespace mojo::python

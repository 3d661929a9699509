// What it is: a layer that keeps a log of the calls and their results, for tests.
// Ordering: the log is in the order in which calls returned. Threads: any. Errors: none of its own.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/layers/hooked.h"

namespace mojo::layers {

struct RecordedCall {
  CallInfo info;
  StatusCode result = StatusCode::ok;
};

class CallLog final : public CallHook {
 public:
  std::vector<RecordedCall> calls() const;
  // The names alone, "record" for instance.
  std::vector<std::string> names() const;
  std::size_t count(const std::string& name) const;
  void clear();

  Status before(const CallInfo&) noexcept override { return {}; }
  void after(const CallInfo& call, const Status& result) noexcept override;

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

std::unique_ptr<driver::Driver> make_recorded(std::unique_ptr<driver::Driver> inner, std::shared_ptr<CallLog> log);

}  // namespace mojo::layers

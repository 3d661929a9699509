// What it is: a layer that makes chosen calls fail: the nth call, or the nth call of one name. Counts the calls.
// Ordering: none added. Threads: any; calls are counted in the order in which they come.
// Errors: the Status given with the plan, instead of calling the driver beneath.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "drivers/layers/hooked.h"

namespace mojo::layers {

// What fails, and what was called. Names are those of CallInfo::name; calls that give back never fail.
class Faults final : public CallHook {
 public:
  // The nth call from now on, the first being 1, fails once.
  void fail_nth(std::uint64_t n, Status status);
  void fail_nth_of(const std::string& name, std::uint64_t n, Status status);
  void clear();  // forgets plans and counts

  std::uint64_t calls() const;
  std::uint64_t calls_of(const std::string& name) const;
  bool triggered() const;  // whether a planned failure has happened since the last clear

  Status before(const CallInfo& call) noexcept override;
  void after(const CallInfo&, const Status&) noexcept override {}

 private:
  struct Plan {
    std::uint64_t at = 0;  // count at which it fails; 0: not at all
    Status status;
  };
  struct Counter {
    std::uint64_t calls = 0;
    Plan plan;
  };
  Status count(Counter& counter);

  mutable std::mutex mutex_;
  Counter all_;
  std::map<std::string, Counter> of_name_;
  bool triggered_ = false;
};

std::unique_ptr<driver::Driver> make_faulty(std::unique_ptr<driver::Driver> inner, std::shared_ptr<Faults> faults);

}  // namespace mojo::layers

#include "ops/op_counter.h"

#include <algorithm>
#include <string_view>

namespace mojo::ops {

namespace {

constinit std::atomic<OpCounter*> counters{nullptr};

void add_reason(std::string& all, std::string_view reason) {
  if (all.find(reason) != std::string::npos) return;  // one text may be two literals
  if (!all.empty()) all += "; ";
  all += reason;
}

}  // namespace

void OpCounter::note(const char* reason) noexcept {
  for (std::atomic<const char*>& slot : reasons_) {
    const char* there = slot.load(std::memory_order_relaxed);
    if (there == nullptr && slot.compare_exchange_strong(there, reason, std::memory_order_relaxed)) return;
    if (there == reason) return;
  }
}

void OpCounter::list_now() noexcept {
  if (listed_.exchange(true, std::memory_order_relaxed)) return;
  next_ = counters.load(std::memory_order_relaxed);
  while (!counters.compare_exchange_weak(next_, this, std::memory_order_release, std::memory_order_relaxed)) {}
}

std::vector<OpCount> op_counts() {
  std::vector<OpCount> result;
  for (const OpCounter* counter = counters.load(std::memory_order_acquire); counter != nullptr;
       counter = counter->next_) {
    OpCount count{counter->name_,
                  counter->queued_.load(std::memory_order_relaxed),
                  counter->waited_.load(std::memory_order_relaxed),
                  {}};
    if (count.queued + count.waited == 0) continue;
    // An op that was taken out of the dispatcher and registered again has two counters.
    auto entry = std::find_if(result.begin(), result.end(), [&](const OpCount& c) { return c.name == count.name; });
    if (entry == result.end()) {
      entry = result.insert(result.end(), std::move(count));
    } else {
      entry->queued += count.queued;
      entry->waited += count.waited;
    }
    for (const std::atomic<const char*>& slot : counter->reasons_)
      if (const char* const reason = slot.load(std::memory_order_relaxed); reason != nullptr)
        add_reason(entry->reason, reason);
  }
  return result;
}

void reset_op_counts() noexcept {
  for (OpCounter* counter = counters.load(std::memory_order_acquire); counter != nullptr; counter = counter->next_) {
    counter->queued_.store(0, std::memory_order_relaxed);
    counter->waited_.store(0, std::memory_order_relaxed);
    for (std::atomic<const char*>& slot : counter->reasons_) slot.store(nullptr, std::memory_order_relaxed);
  }
}

}  // namespace mojo::ops

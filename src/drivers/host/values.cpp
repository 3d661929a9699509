#include "drivers/host/values.h"

#include <atomic>
#include <mutex>
#include <new>

#include "drivers/host/queue_core.h"

namespace mojo::host {
namespace {

// Takes the waiters out of the list whose waits end in the way that `judge` says.
template <class Judge>
QueueCore* take_waiters(ValueSlot& slot, Judge judge) noexcept {
  QueueCore* taken = nullptr;
  QueueCore** taken_tail = &taken;
  QueueCore** link = &slot.waiters;
  while (QueueCore* queue = *link) {
    const Resume how = judge(*queue);
    if (how == Resume::none) {
      link = &queue->wait_next;
      continue;
    }
    *link = queue->wait_next;
    queue->resume = how;
    queue->wait_next = nullptr;
    *taken_tail = queue;
    taken_tail = &queue->wait_next;
  }
  return taken;
}

}  // namespace

Status ValueTable::allocate(std::uint64_t*& out) noexcept {
  std::lock_guard guard(lock_);
  if (free_ == nullptr) {
    try {
      auto slab = std::make_unique<ValueSlot[]>(slots_a_slab);
      ValueSlot* slots = slab.get();
      slabs_.push_back(std::move(slab));
      for (int i = slots_a_slab - 1; i >= 0; --i) {
        slots[i].next_free = free_;
        free_ = slots + i;
      }
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::out_of_memory, "host driver: no host memory for a value");
    }
  }
  ValueSlot* slot = free_;
  free_ = slot->next_free;
  std::lock_guard slot_guard(slot->lock);
  std::atomic_ref(slot->value).store(0, std::memory_order_relaxed);
  std::atomic_ref(slot->magic).store(ValueSlot::live_magic, std::memory_order_relaxed);
  slot->logical = 0;
  slot->abandoned = false;
  slot->refs = 1;
  slot->why = Status();
  out = &slot->value;
  return {};
}

ValueSlot* ValueTable::acquire(const std::uint64_t* address) noexcept {
  if (address == nullptr || reinterpret_cast<std::uintptr_t>(address) % alignof(ValueSlot) != 0) return nullptr;
  auto* slot = reinterpret_cast<ValueSlot*>(const_cast<std::uint64_t*>(address));
  if (std::atomic_ref(slot->magic).load(std::memory_order_relaxed) != ValueSlot::live_magic) return nullptr;
  std::lock_guard guard(slot->lock);
  if (std::atomic_ref(slot->magic).load(std::memory_order_relaxed) != ValueSlot::live_magic) return nullptr;
  ++slot->refs;
  return slot;
}

void ValueTable::release(ValueSlot* slot) noexcept {
  {
    std::lock_guard guard(slot->lock);
    if (--slot->refs != 0) return;
  }
  std::lock_guard guard(lock_);
  slot->next_free = free_;
  free_ = slot;
}

QueueCore* ValueTable::store(ValueSlot& slot, std::uint64_t value, bool logical_too) noexcept {
  std::lock_guard guard(slot.lock);
  std::atomic_ref(slot.value).store(value, std::memory_order_release);
  if (logical_too) slot.logical = value;
  return take_waiters(
      slot, [value](QueueCore& queue) { return queue.wait_for_value == value ? Resume::satisfied : Resume::none; });
}

QueueCore* ValueTable::abandon(ValueSlot& slot, const Status& why) noexcept {
  std::lock_guard guard(slot.lock);
  slot.abandoned = true;
  slot.why = why;
  return take_waiters(slot, [](QueueCore&) { return Resume::abandoned; });
}

QueueCore* ValueTable::retire(ValueSlot& slot) noexcept {
  std::lock_guard guard(slot.lock);
  std::atomic_ref(slot.magic).store(ValueSlot::dead_magic, std::memory_order_relaxed);
  --slot.refs;  // the allocation's; the caller still holds one
  if (slot.abandoned) return nullptr;
  slot.abandoned = true;
  slot.why = Status(StatusCode::failed_precondition, "host driver: the value was freed while a queue waited for it");
  return take_waiters(slot, [](QueueCore&) { return Resume::abandoned; });
}

Resume ValueTable::park(ValueSlot& slot, std::uint64_t value, QueueCore& queue) noexcept {
  std::lock_guard guard(slot.lock);
  // The value first: a wait that was satisfied before the slot was given up did not fail.
  if (std::atomic_ref(slot.value).load(std::memory_order_acquire) == value) return Resume::satisfied;
  if (slot.abandoned) return Resume::abandoned;
  queue.wait_for_value = value;
  queue.wait_next = nullptr;
  QueueCore** link = &slot.waiters;
  while (*link != nullptr) link = &(*link)->wait_next;
  *link = &queue;
  return Resume::none;
}

QueueCore* ValueTable::abandon_all(const Status& why) noexcept {
  QueueCore* all = nullptr;
  std::lock_guard guard(lock_);
  for (auto& slab : slabs_) {
    for (int i = 0; i < slots_a_slab; ++i) {
      for (QueueCore* queue = abandon(slab[i], why); queue != nullptr;) {
        QueueCore* next = queue->wait_next;
        queue->wait_next = all;
        all = queue;
        queue = next;
      }
    }
  }
  return all;
}

}  // namespace mojo::host

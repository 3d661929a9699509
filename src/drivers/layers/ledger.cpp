#include "drivers/layers/ledger.h"

#include <unistd.h>

#include <cstdio>

namespace mojo::layers {
namespace {

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::uint64_t number(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

Status broken(const char* call, const std::string& rule) {
  return Status(StatusCode::invalid_argument, std::string("checked driver: ") + call + ": " + rule);
}

}  // namespace

Ledger::Ledger() : owner_(getpid()) {}

bool Ledger::inherited() const noexcept { return getpid() != owner_; }

const std::pair<const std::uint64_t, Ledger::Block>* Ledger::find(const std::map<std::uint64_t, Block>& blocks,
                                                                  std::uint64_t address) {
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin()) return nullptr;
  --it;
  return address - it->first <= it->second.bytes ? &*it : nullptr;
}

void Ledger::add_segment(int device, DevicePtr ptr, std::uint64_t bytes) {
  if (!ptr) return;
  std::lock_guard guard(mutex_);
  segments_.insert_or_assign(ptr.address, Block{bytes, device});
}

void Ledger::add_pinned(int device, const void* ptr, std::uint64_t bytes) {
  if (ptr == nullptr) return;
  std::lock_guard guard(mutex_);
  pinned_.insert_or_assign(number(ptr), Block{bytes, device});
}

void Ledger::add_value(int device, const std::uint64_t* address) {
  std::lock_guard guard(mutex_);
  values_.insert_or_assign(address, device);
}

void Ledger::add_kernel(int device, const driver::Kernel* kernel) {
  std::lock_guard guard(mutex_);
  kernels_.insert_or_assign(kernel, device);
}

void Ledger::remove_kernel(const driver::Kernel* kernel) {
  std::lock_guard guard(mutex_);
  kernels_.erase(kernel);
}

Status Ledger::check_kernel(const char* call, int device, const driver::Kernel* kernel) const {
  std::lock_guard guard(mutex_);
  const auto it = kernels_.find(kernel);
  if (it == kernels_.end()) return broken(call, "the kernel has been destroyed, or is of another driver");
  if (it->second == device) return {};
  return Status(StatusCode::failed_precondition, std::string("checked driver: ") + call + ": a kernel of device " +
                                                     std::to_string(it->second) + " on a queue of device " +
                                                     std::to_string(device));
}

void Ledger::add_event(int device, const driver::Event* event) {
  std::lock_guard guard(mutex_);
  events_.insert_or_assign(event, device);
}

void Ledger::add_queue(int device, int change) {
  std::lock_guard guard(mutex_);
  queues_[device] += change;
}

void Ledger::remove_event(const driver::Event* event) {
  std::lock_guard guard(mutex_);
  events_.erase(event);
}

Status Ledger::take_segment(const char* call, int device, DevicePtr ptr) {
  if (!ptr) return {};
  std::lock_guard guard(mutex_);
  const auto it = segments_.find(ptr.address);
  if (it == segments_.end()) {
    return broken(call, hex(ptr.address) + " is no live segment (freed twice, or an inner address)");
  }
  if (it->second.device != device) {
    return broken(call, hex(ptr.address) + " belongs to device " + std::to_string(it->second.device) + ", not " +
                            std::to_string(device));
  }
  segments_.erase(it);
  return {};
}

Status Ledger::take_pinned(const char* call, const void* ptr) {
  if (ptr == nullptr) return {};
  std::lock_guard guard(mutex_);
  if (pinned_.erase(number(ptr)) == 1) return {};
  return broken(call, hex(number(ptr)) + " is no live pinned block (freed twice, or an inner address)");
}

Status Ledger::take_value(const char* call, const std::uint64_t* address) {
  std::lock_guard guard(mutex_);
  if (values_.erase(address) == 1) return {};
  return broken(call, hex(number(address)) + " is no live value");
}

Status Ledger::check_range(const char* call, int device, DevicePtr ptr, std::uint64_t bytes) const {
  if (bytes == 0) return {};
  std::lock_guard guard(mutex_);
  const auto* block = find(segments_, ptr.address);
  if (block == nullptr) return broken(call, hex(ptr.address) + " is in no live segment (freed, or never allocated)");
  if (device >= 0 && block->second.device != device) {
    return broken(call, hex(ptr.address) + " belongs to device " + std::to_string(block->second.device) + ", not " +
                            std::to_string(device));
  }
  const std::uint64_t offset = ptr.address - block->first;
  if (bytes <= block->second.bytes - offset) return {};
  return broken(call, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of a segment of " +
                          std::to_string(block->second.bytes) + " bytes");
}

Status Ledger::check_pinned(const char* call, const void* ptr, std::uint64_t bytes) const {
  if (bytes == 0) return {};
  std::lock_guard guard(mutex_);
  const auto* block = find(pinned_, number(ptr));
  if (block == nullptr) {
    return broken(call, "host address " + hex(number(ptr)) + " is not pinned, and the copy does not say pageable");
  }
  const std::uint64_t offset = number(ptr) - block->first;
  if (bytes <= block->second.bytes - offset) return {};
  return broken(call, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of a pinned block of " +
                          std::to_string(block->second.bytes) + " bytes");
}

Status Ledger::check_value(const char* call, const std::uint64_t* address) const {
  std::lock_guard guard(mutex_);
  if (values_.contains(address)) return {};
  return broken(call, hex(number(address)) + " is no live value");
}

Status Ledger::check_event(const char* call, int device, const driver::Event* event) const {
  std::lock_guard guard(mutex_);
  const auto it = events_.find(event);
  if (it == events_.end()) return broken(call, "the event has been destroyed, or is of another driver");
  if (device < 0 || it->second == device) return {};
  return Status(StatusCode::failed_precondition, std::string("checked driver: ") + call + ": an event of device " +
                                                     std::to_string(it->second) + " on a queue of device " +
                                                     std::to_string(device));
}

Status Ledger::check_accesses(const char* call, std::span<const Access> accesses) const {
  for (const Access& access : accesses) MOJO_RETURN_IF_ERROR(check_range(call, -1, access.ptr, access.bytes));
  return {};
}

std::string Ledger::leaks(int device) const {
  std::lock_guard guard(mutex_);
  std::string text;
  const auto line = [&](std::size_t count, const char* what, std::uint64_t bytes) {
    if (count == 0) return;
    text += "device " + std::to_string(device) + " destroyed with " + std::to_string(count) + " " + what;
    if (bytes != 0) text += " (" + std::to_string(bytes) + " bytes)";
    text += " alive\n";
  };
  const auto blocks = [&](const std::map<std::uint64_t, Block>& all, const char* what) {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    for (const auto& [address, block] : all) {
      if (block.device != device) continue;
      ++count;
      bytes += block.bytes;
    }
    line(count, what, bytes);
  };
  blocks(segments_, "segments");
  blocks(pinned_, "pinned blocks");
  const auto owned = [&](const auto& all) {
    std::size_t count = 0;
    for (const auto& [object, of] : all) count += of == device ? 1u : 0u;
    return count;
  };
  line(owned(values_), "values", 0);
  line(owned(events_), "events", 0);
  line(owned(kernels_), "kernels", 0);
  const auto queues = queues_.find(device);
  line(queues != queues_.end() ? static_cast<std::size_t>(queues->second) : 0, "queues", 0);
  return text;
}

}  // namespace mojo::layers

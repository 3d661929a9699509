#include "ordering/clock.h"

#include <algorithm>

namespace mojo::ordering {

Clock::Clock(const Clock& other) : prune_at_(other.prune_at_) {
  reserve(other.size_);
  std::copy_n(other.entries_, other.size_, entries_);
  size_ = other.size_;
}

Clock::Clock(Clock&& other) noexcept { take(other); }

Clock& Clock::assign(const Clock& other) {
  size_ = 0;  // nothing to carry over when the storage grows
  reserve(other.size_);
  std::copy_n(other.entries_, other.size_, entries_);
  size_ = other.size_;
  prune_at_ = other.prune_at_;
  return *this;
}

Clock& Clock::operator=(Clock&& other) noexcept {
  if (this == &other) return *this;
  if (entries_ != inline_) delete[] entries_;
  take(other);
  return *this;
}

Clock::~Clock() {
  if (entries_ != inline_) delete[] entries_;
}

void Clock::take(Clock& other) noexcept {
  if (other.entries_ == other.inline_) {
    std::copy_n(other.inline_, other.size_, inline_);
    entries_ = inline_;
    capacity_ = inline_capacity;
  } else {
    entries_ = std::exchange(other.entries_, other.inline_);
    capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(inline_capacity));
  }
  size_ = std::exchange(other.size_, 0);
  prune_at_ = std::exchange(other.prune_at_, first_prune);
}

void Clock::reserve(std::size_t capacity) {
  if (capacity <= capacity_) return;
  capacity = std::max<std::size_t>(capacity, std::size_t{capacity_} * 2);
  auto* grown = new Position[capacity];
  std::copy_n(entries_, size_, grown);
  if (entries_ != inline_) delete[] entries_;
  entries_ = grown;
  capacity_ = static_cast<std::uint32_t>(capacity);
}

Position* Clock::lower_bound(StreamUid stream) noexcept {
  return std::lower_bound(entries_, entries_ + size_, stream,
                          [](const Position& entry, StreamUid uid) { return entry.stream < uid; });
}

std::uint64_t Clock::sequence_of(StreamUid stream) const noexcept {
  const Position* entry = const_cast<Clock*>(this)->lower_bound(stream);
  return entry != entries_ + size_ && entry->stream == stream ? entry->sequence : 0;
}

void Clock::advance_entry(StreamUid stream, std::uint64_t sequence) {
  if (sequence == 0) return;
  Position* entry = lower_bound(stream);
  if (entry != entries_ + size_ && entry->stream == stream) {
    entry->sequence = std::max(entry->sequence, sequence);
    return;
  }
  const std::ptrdiff_t at = entry - entries_;
  reserve(std::size_t{size_} + 1);
  std::copy_backward(entries_ + at, entries_ + size_, entries_ + size_ + 1);
  entries_[at] = {stream, sequence};
  ++size_;
}

void Clock::merge(const Clock& other) {
  if (&other == this) return;
  // Count first, so that the storage grows at most once and nothing changes if it cannot.
  std::size_t added = 0;
  for (std::size_t i = 0, j = 0; j < other.size_;) {
    if (i == size_ || other.entries_[j].stream < entries_[i].stream) {
      ++added, ++j;
    } else if (entries_[i].stream < other.entries_[j].stream) {
      ++i;
    } else {
      ++i, ++j;
    }
  }
  reserve(size_ + added);
  // From the back, in place.
  std::size_t i = size_, j = other.size_, to = size_ + added;
  size_ = static_cast<std::uint32_t>(to);
  while (j > 0) {
    const Position& theirs = other.entries_[j - 1];
    if (i > 0 && entries_[i - 1].stream > theirs.stream) {
      entries_[--to] = entries_[--i];
    } else if (i > 0 && entries_[i - 1].stream == theirs.stream) {
      const std::uint64_t sequence = std::max(entries_[--i].sequence, theirs.sequence);
      entries_[--to] = {theirs.stream, sequence};
      --j;
    } else {
      entries_[--to] = theirs;
      --j;
    }
  }
}

}  // namespace mojo::ordering

// What it is: Position, one operation of one stream, and Clock, a vector clock: for each stream how many of its first
//   operations something is ordered after. One clock answers the allocator's question and the race checker's.
// Ordering: clocks describe the order, they make none. Everything that orders a stream after another takes a number on
//   it: a wait is an operation of the stream that waits.
// Threads: a plain value; the stream that owns a Clock guards it with its own lock.
// Errors: none, but std::bad_alloc when a clock outgrows its inline entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace mojo::ordering {

// Names a stream of any device. Unique in the process and never used again. 0 is no stream.
using StreamUid = std::uint32_t;

// "The first `sequence` operations of `stream`." Operations are numbered from 1; sequence 0 is none of them.
struct Position {
  StreamUid stream = 0;
  std::uint64_t sequence = 0;

  friend constexpr bool operator==(const Position&, const Position&) noexcept = default;
};

class Clock {
 public:
  // As many streams as meet in an ordinary program. Up to this size a Clock allocates nothing.
  static constexpr std::size_t inline_capacity = 4;

  Clock() noexcept = default;
  Clock(const Clock& other);
  Clock(Clock&& other) noexcept;
  Clock& operator=(const Clock& other) {
    if (this == &other) return *this;
    if (other.size_ == 0) {  // as in a program of one stream
      size_ = 0;
      prune_at_ = other.prune_at_;
      return *this;
    }
    return assign(other);
  }
  Clock& operator=(Clock&& other) noexcept;
  ~Clock();

  // Ordered after the first `sequence` operations of `stream` too. Never goes back.
  void advance(StreamUid stream, std::uint64_t sequence) {
    if (size_ == 1 && entries_[0].stream == stream) {  // as where two streams take turns
      if (entries_[0].sequence < sequence) entries_[0].sequence = sequence;
    } else {
      advance_entry(stream, sequence);
    }
  }
  // Ordered after all that `other` is ordered after.
  void merge(const Clock& other);
  // The same for a clock that lives long: now and then drops the positions for which `complete(Position)` is true. A
  // complete position orders nothing, and without this a program that makes n streams would do work in n squared. The
  // predicate is called for a constant number of positions per position merged, on average.
  template <typename Complete>
  void merge(const Clock& other, Complete&& complete) {
    if (!other.empty()) merge(other);
    if (size_ >= prune_at_) {
      prune(complete);
      // Twice the survivors: however many of them there are, each prune is paid for by as many merged entries.
      prune_at_ = size_ * 2 < first_prune ? first_prune : size_ * 2;
    }
  }

  // Whether the first `position.sequence` operations of that stream are among those that this is ordered after.
  bool dominates(Position position) const noexcept { return sequence_of(position.stream) >= position.sequence; }
  // How many operations of `stream` this is ordered after; 0 for a stream it never met.
  std::uint64_t sequence_of(StreamUid stream) const noexcept;

  // Drops every position for which `complete(Position) -> bool` is true.
  template <typename Complete>
  void prune(Complete&& complete) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!complete(std::as_const(entries_[i]))) entries_[kept++] = entries_[i];
    }
    size_ = static_cast<std::uint32_t>(kept);
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = 0; }
  // The positions, by ascending stream. Valid until the clock changes.
  std::span<const Position> positions() const noexcept { return {entries_, size_}; }

 private:
  static constexpr std::size_t first_prune = 16;

  Clock& assign(const Clock& other);
  void advance_entry(StreamUid stream, std::uint64_t sequence);
  Position* lower_bound(StreamUid stream) noexcept;
  void reserve(std::size_t capacity);
  void take(Clock& other) noexcept;

  Position* entries_ = inline_;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = inline_capacity;
  std::size_t prune_at_ = first_prune;
  Position inline_[inline_capacity];
};

}  // namespace mojo::ordering

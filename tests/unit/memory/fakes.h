// What it is: the world of the allocators' tests: memory that is only numbers, and streams that move when the test says so.
// Ordering: SteppedStreams knows the truth: which operations are complete, and which come before which, kept in plain maps
//   that share nothing with ordering::Clock.
// Threads: both are guarded by a mutex of their own. Errors: as the test asks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "memory/sources.h"
#include "unit/ordering/seeds.h"

namespace mojo::memory::test {

// Sizes of all kinds: small ones mostly, large ones, and some with a segment of their own.
inline std::uint64_t random_size(std::mt19937_64& random) {
  switch (mojo::test::below(random, 8)) {
    case 0:
    case 1:
    case 2: return 1 + mojo::test::below(random, 4 * 1024);
    case 3:
    case 4: return 1 + mojo::test::below(random, (1 << 20));
    case 5:
    case 6: return (1 << 20) + mojo::test::below(random, 9 * (1 << 20));
    default: return 9 * (1 << 20) + mojo::test::below(random, 30 * (1 << 20));
  }
}

class FakeSegments final : public SegmentSource {
 public:
  std::uint64_t capacity = 0;  // 0: no bound
  std::function<void(std::uint64_t address, std::uint64_t bytes)> on_free;
  int fail_at = 0;  // the nth call of allocate from now fails; 0: none
  StatusCode failure = StatusCode::out_of_memory;

  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (fail_at > 0 && --fail_at == 0) return Status(failure, "told to fail");
    if (capacity != 0 && used_ + bytes > capacity) return Status(StatusCode::out_of_memory, "full");
    out = DevicePtr{next_};
    next_ += bytes + gap;
    live_[out.address] = bytes;
    used_ += bytes;
    most_used_ = std::max(most_used_, used_);
    return {};
  }
  Status free(DevicePtr ptr, std::uint64_t bytes) noexcept override {
    if (on_free) on_free(ptr.address, bytes);
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(ptr.address);
    EXPECT_TRUE(found != live_.end() && found->second == bytes) << "freed what is not a segment";
    if (found == live_.end()) return Status(StatusCode::invalid_argument, "no such segment");
    used_ -= found->second;
    live_.erase(found);
    return {};
  }
  void memory_info(std::uint64_t& free, std::uint64_t& total) noexcept override {
    const std::lock_guard lock(mutex_);
    total = capacity;
    free = capacity - std::min(used_, capacity);
  }

  bool contains(std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto after = live_.upper_bound(address);
    if (after == live_.begin()) return false;
    --after;
    return address >= after->first && address + bytes <= after->first + after->second;
  }
  std::size_t live() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  std::uint64_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  static constexpr std::uint64_t gap = 4096;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> live_;
  std::uint64_t next_ = 0x100000000;
  std::uint64_t used_ = 0, most_used_ = 0;
  int calls_ = 0;
};

class SteppedStreams final : public FenceSource {
 public:
  using Positions = std::map<StreamUid, std::uint64_t>;
  struct Record {
    Position position;
    Positions before;
  };

  // With `fences`, completed() is the truth only as far as the test lets the runtime know of it (by `learn` or `wait`).
  explicit SteppedStreams(bool fences = false) : fences_wanted_(fences) {}
  ~SteppedStreams() { EXPECT_EQ(fences_.size(), 0u) << "fences were not released"; }

  Position enqueue(StreamUid stream) {
    const std::lock_guard lock(mutex_);
    return enqueue_locked(stream);
  }
  Record record(StreamUid stream) {
    const std::lock_guard lock(mutex_);
    const Position p = enqueue_locked(stream);
    Record r{p, streams_[stream].before};
    r.before[p.stream] = p.sequence;
    return r;
  }
  void wait_for(StreamUid stream, const Record& record) {
    const std::lock_guard lock(mutex_);
    const Position p = enqueue_locked(stream);
    if (p.stream == record.position.stream) return;
    for (auto [other, sequence] : record.before) {
      if (other == stream) continue;
      auto& known = streams_[stream].before[other];
      known = std::max(known, sequence);
    }
    streams_[stream].waits[p.sequence] = record.position;
  }
  void wait_stream(StreamUid stream, StreamUid other) { wait_for(stream, record(other)); }

  // Completes the next operation of the stream, unless there is none or it waits for one that is not complete.
  bool step(StreamUid stream) {
    const std::lock_guard lock(mutex_);
    return step_locked(stream);
  }
  // Completes all of the stream, and of others what it waits for.
  void finish(StreamUid stream) {
    const std::lock_guard lock(mutex_);
    finish_locked({stream, streams_[stream].enqueued});
  }
  void finish_all() {
    const std::lock_guard lock(mutex_);
    for (auto& [uid, stream] : streams_) finish_locked({uid, stream.enqueued});
  }
  // Only with fences: the runtime finds out how far a stream is.
  void learn(StreamUid stream) {
    const std::lock_guard lock(mutex_);
    streams_[stream].known = streams_[stream].completed;
  }

  bool really_complete(Position p) {
    const std::lock_guard lock(mutex_);
    return p.sequence <= streams_[p.stream].completed;
  }
  // Whether the next operation of `stream` comes after `p`, or p is complete: may it touch what p touches?
  bool may_follow(StreamUid stream, Position p) {
    const std::lock_guard lock(mutex_);
    if (p.stream == stream || p.sequence <= streams_[p.stream].completed) return true;
    const auto& before = streams_[stream].before;
    const auto found = before.find(p.stream);
    return found != before.end() && found->second >= p.sequence;
  }
  // Called once, when the allocator next asks ordered_before: what another thread does at that moment.
  std::function<void()> on_question;
  int polls = 0, waits = 0, records = 0;
  bool fail_records = false;
  std::size_t outstanding_fences() {
    const std::lock_guard lock(mutex_);
    return fences_.size();
  }

  std::uint64_t position(StreamUid stream) noexcept override {
    const std::lock_guard lock(mutex_);
    return streams_[stream].enqueued;
  }
  std::uint64_t completed(StreamUid stream) noexcept override {
    const std::lock_guard lock(mutex_);
    return fences_wanted_ ? streams_[stream].known : streams_[stream].completed;
  }
  std::uint64_t ordered_before(StreamUid stream, StreamUid after) noexcept override {
    EXPECT_NE(stream, after);
    if (const auto action = std::exchange(on_question, nullptr)) action();
    const std::lock_guard lock(mutex_);
    const auto& before = streams_[after].before;
    const auto found = before.find(stream);
    return found == before.end() ? 0 : found->second;
  }
  Status wait(Position position, Fence fence) noexcept override {
    const std::lock_guard lock(mutex_);
    ++waits;
    if (fence) {
      EXPECT_TRUE(fences_.count(fence.value));
    }
    EXPECT_LE(position.sequence, streams_[position.stream].enqueued);
    finish_locked(position);
    auto& known = streams_[position.stream].known;
    known = std::max(known, position.sequence);
    return {};
  }
  bool needs_fences() const noexcept override { return fences_wanted_; }
  Status record_fence(StreamUid stream, Fence& out) noexcept override {
    const std::lock_guard lock(mutex_);
    if (fail_records) return Status(StatusCode::internal, "told to fail");
    ++records;
    out.value = ++last_fence_;
    fences_[out.value] = {stream, streams_[stream].enqueued};
    return {};
  }
  bool fence_done(Fence fence) noexcept override {
    const std::lock_guard lock(mutex_);
    ++polls;
    const auto found = fences_.find(fence.value);
    EXPECT_TRUE(found != fences_.end()) << "polled a released fence";
    return found != fences_.end() && found->second.sequence <= streams_[found->second.stream].completed;
  }
  void release_fence(Fence fence) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(fences_.erase(fence.value), 1u) << "released a fence twice";
  }

 private:
  struct Stream {
    std::uint64_t enqueued = 0, completed = 0, known = 0;
    Positions before;                         // what the next operation comes after
    std::map<std::uint64_t, Position> waits;  // operation -> what it waits for
  };

  Position enqueue_locked(StreamUid stream) { return {stream, ++streams_[stream].enqueued}; }
  bool step_locked(StreamUid uid) {
    Stream& stream = streams_[uid];
    if (stream.completed == stream.enqueued) return false;
    const auto wait = stream.waits.find(stream.completed + 1);
    if (wait != stream.waits.end() && wait->second.sequence > streams_[wait->second.stream].completed) return false;
    ++stream.completed;
    return true;
  }
  void finish_locked(Position target) {
    while (streams_[target.stream].completed < target.sequence) {
      if (!step_locked(target.stream)) {
        Stream& stream = streams_[target.stream];
        finish_locked(stream.waits.at(stream.completed + 1));
      }
    }
  }

  const bool fences_wanted_;
  std::mutex mutex_;
  std::map<StreamUid, Stream> streams_;
  std::map<std::uint64_t, Position> fences_;
  std::uint64_t last_fence_ = 0;
};

}  // namespace mojo::memory::test

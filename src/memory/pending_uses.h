// What it is: PendingUses, which streams use what, and the freed pieces of memory that wait until those uses are done.
// Ordering: a use is done for everybody once it is complete, and for a stream R once it is ordered before R's next
//   operation. Nothing is enqueued but the fences that a FenceSource asks for.
// Threads: guarded by its allocator's mutex.
// Errors: add_use throws std::bad_alloc; a fence that cannot be recorded or kept is done without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "memory/sources.h"

namespace mojo::memory {

struct UsedItem;

// One stream that uses something: how far it is known to be, and what waits for it.
struct UsingStream {
  struct FenceAt {
    std::uint64_t sequence = 0;
    Fence fence;
  };

  StreamUid uid = 0;
  std::uint32_t uses = 0;          // Use entries that name this stream
  std::uint32_t waiting_uses = 0;  // those of waiting items
  std::size_t place = 0;           // in PendingUses::waited_for_, if the list below is not empty
  std::uint64_t known_complete = 0;
  std::vector<FenceAt> fences;  // ascending
  UsedItem* first = nullptr;    // items that wait for this stream, by ascending sequence of that use
  UsedItem* last = nullptr;
};

struct Use {
  UsingStream* stream = nullptr;
  std::uint64_t sequence = 0;  // 0: to be fixed when the item is freed
};

// What can be used by streams: the base of the blocks of both allocators. A waiting item is in the list of the stream of
// its last use only; when that use is done it moves on to the next.
struct UsedItem {
  std::vector<Use> uses;  // one a stream; keeps its capacity when the item is used again
  UsedItem* previous_waiting = nullptr;
  UsedItem* next_waiting = nullptr;
};

class PendingUses {
 public:
  explicit PendingUses(FenceSource& source) : source_(source), needs_fences_(source.needs_fences()) {}
  ~PendingUses();
  PendingUses(const PendingUses&) = delete;
  PendingUses& operator=(const PendingUses&) = delete;

  // `item`, which is in use, is used by `stream` up to `sequence`; 0: up to wherever the stream is when it is freed.
  void add_use(UsedItem& item, StreamUid stream, std::uint64_t sequence);
  // `item` is freed. Fixes its positions and drops the uses that are complete or, owner being no 0, ordered before the
  // next operation of `owner`. Whether any are left: the item then waits here.
  bool start_waiting(UsedItem& item, StreamUid owner) noexcept;
  // Takes a waiting item out and forgets its uses.
  void stop_waiting(UsedItem& item) noexcept;
  // Whether anything waits.
  bool empty() const noexcept { return waiting_ == 0; }
  // The streams that something waits for, at least one use of each item among them.
  void waited_streams(std::vector<StreamUid>& out) const {
    for (const UsingStream* stream : waited_for_) out.push_back(stream->uid);
  }

  // Calls done(item) for each item that no longer waits, as far as is known without asking the driver.
  template <typename Done>
  void sweep(Done&& done) noexcept;
  // The same, looking at so many streams at most, and at other ones at the next call.
  template <typename Done>
  void sweep_some(std::size_t streams, Done&& done) noexcept;
  // Offers each item whose uses are all complete or ordered before the next operation of `requester`: if wanted(item),
  // the item stops waiting and done(item) is called.
  template <typename Wanted, typename Done>
  void take_ordered(StreamUid requester, Wanted&& wanted, Done&& done) noexcept;

  // These call the driver: they give `lock`, which is the allocator's, up meanwhile. Afterwards sweep knows what they learnt.
  using Lock = std::unique_lock<std::mutex>;
  bool needs_fences() const noexcept { return needs_fences_; }
  // Records a fence for each position of a waiting item that none covers yet.
  void record_fences(Lock& lock, const UsedItem& item) noexcept;
  // Asks about the oldest fence of each stream that something waits for, and on while answers are yes. Whether any was.
  bool poll_fences(Lock& lock);
  // Blocks the host until all uses of all waiting items are done, and `others` too. False: there was nothing to wait for.
  bool wait(Lock& lock, const std::vector<Position>& others);

 private:
  static constexpr std::size_t kept_idle_streams = 64;

  struct TakenFence {
    StreamUid stream = 0;
    UsingStream::FenceAt at;  // the fence may be none: then it is a position alone
    bool done = false;
  };
  // Keeps a fence recorded at `position` or later, while somebody waits for that stream.
  void keep_fence(Position position, Fence fence) noexcept;
  void give_back(const TakenFence& taken) noexcept;

  template <typename Done>
  void sweep_stream(UsingStream& stream, Done& done) noexcept;
  std::uint64_t complete_bound(UsingStream& stream) noexcept;
  std::uint64_t ordered_bound(UsingStream& stream, StreamUid after) noexcept;
  bool all_ordered(const UsedItem& item, StreamUid requester) noexcept;
  void link(UsedItem& item) noexcept;
  void unlink(UsedItem& item) noexcept;
  void forget_last_use(UsedItem& item) noexcept;
  // Drops uses from the back until one is not complete; whether none is left. The item is in no list.
  bool drop_complete(UsedItem& item) noexcept;
  void drop_fences(UsingStream& stream, std::uint64_t through) noexcept;
  void forget_idle_streams() noexcept;

  FenceSource& source_;
  const bool needs_fences_;
  std::unordered_map<StreamUid, std::unique_ptr<UsingStream>> streams_;
  std::vector<UsingStream*> waited_for_;  // streams with a non-empty list
  std::size_t cursor_ = 0;                // where the next sweep_some goes on
  std::size_t idle_ = 0;                  // streams in streams_ without uses
  std::size_t waiting_ = 0;
};

template <typename Done>
void PendingUses::sweep_stream(UsingStream& stream, Done& done) noexcept {
  const std::uint64_t bound = complete_bound(stream);
  while (stream.first != nullptr && stream.first->uses.back().sequence <= bound) {
    UsedItem& item = *stream.first;
    unlink(item);
    forget_last_use(item);
    if (drop_complete(item)) {
      done(item);
    } else {
      link(item);
    }
  }
}

template <typename Done>
void PendingUses::sweep_some(std::size_t streams, Done&& done) noexcept {
  for (; streams > 0 && waiting_ > 0; --streams) {
    if (cursor_ >= waited_for_.size()) cursor_ = 0;
    UsingStream& stream = *waited_for_[cursor_];
    sweep_stream(stream, done);
    if (stream.first != nullptr) ++cursor_;  // else another one has this place now
  }
}

template <typename Done>
void PendingUses::sweep(Done&& done) noexcept {
  // Backwards: a stream that nothing waits for any more leaves by having the last one, seen already, moved into its place.
  for (std::size_t i = waited_for_.size(); i-- > 0;) sweep_stream(*waited_for_[i], done);
}

template <typename Wanted, typename Done>
void PendingUses::take_ordered(StreamUid requester, Wanted&& wanted, Done&& done) noexcept {
  // Backwards, as in sweep.
  for (std::size_t i = waited_for_.size(); i-- > 0;) {
    UsingStream& stream = *waited_for_[i];
    const std::uint64_t bound = ordered_bound(stream, requester);
    for (UsedItem *item = stream.first, *next = nullptr; item != nullptr && item->uses.back().sequence <= bound;
         item = next) {
      next = item->next_waiting;
      if (!all_ordered(*item, requester) || !wanted(*item)) continue;
      stop_waiting(*item);
      done(*item);
    }
  }
}

}  // namespace mojo::memory

#include "memory/pending_uses.h"

#include <algorithm>
#include <new>

namespace mojo::memory {

PendingUses::~PendingUses() {
  for (auto& [uid, stream] : streams_) drop_fences(*stream, std::numeric_limits<std::uint64_t>::max());
}

void PendingUses::add_use(UsedItem& item, StreamUid stream, std::uint64_t sequence) {
  for (Use& use : item.uses) {
    if (use.stream->uid != stream) continue;
    // "Until it is freed" is the later of any two.
    use.sequence = use.sequence == 0 || sequence == 0 ? 0 : std::max(use.sequence, sequence);
    return;
  }
  item.uses.reserve(item.uses.size() + 1);
  auto found = streams_.find(stream);
  if (found == streams_.end()) {
    if (idle_ > kept_idle_streams && idle_ * 2 > streams_.size()) forget_idle_streams();
    auto made = std::make_unique<UsingStream>();
    made->uid = stream;
    // Room in waited_for_ for every stream, so that freeing never allocates.
    if (waited_for_.capacity() <= streams_.size()) waited_for_.reserve(streams_.size() * 2 + 8);
    found = streams_.emplace(stream, std::move(made)).first;
    ++idle_;
  }
  if (found->second->uses++ == 0) --idle_;
  item.uses.push_back({found->second.get(), sequence});
}

bool PendingUses::start_waiting(UsedItem& item, StreamUid owner) noexcept {
  std::size_t kept = 0;
  for (Use use : item.uses) {
    UsingStream& stream = *use.stream;
    if (use.sequence == 0) use.sequence = source_.position(stream.uid);
    const bool done =
        use.sequence <= complete_bound(stream) || (owner != 0 && use.sequence <= ordered_bound(stream, owner));
    if (done) {
      if (--stream.uses == 0) ++idle_;
    } else {
      ++stream.waiting_uses;
      item.uses[kept++] = use;
    }
  }
  item.uses.resize(kept);
  if (kept == 0) return false;
  link(item);
  return true;
}

void PendingUses::stop_waiting(UsedItem& item) noexcept {
  unlink(item);
  while (!item.uses.empty()) forget_last_use(item);
}

std::uint64_t PendingUses::complete_bound(UsingStream& stream) noexcept {
  stream.known_complete = std::max(stream.known_complete, source_.completed(stream.uid));
  if (!stream.fences.empty()) drop_fences(stream, stream.known_complete);
  return stream.known_complete;
}

std::uint64_t PendingUses::ordered_bound(UsingStream& stream, StreamUid after) noexcept {
  if (stream.uid == after) return std::numeric_limits<std::uint64_t>::max();
  return std::max(stream.known_complete, source_.ordered_before(stream.uid, after));
}

bool PendingUses::all_ordered(const UsedItem& item, StreamUid requester) noexcept {
  return std::all_of(item.uses.begin(), item.uses.end(), [&](const Use& use) {
    return use.sequence <= complete_bound(*use.stream) || use.sequence <= ordered_bound(*use.stream, requester);
  });
}

void PendingUses::link(UsedItem& item) noexcept {
  const Use& use = item.uses.back();
  UsingStream& stream = *use.stream;
  if (stream.first == nullptr) {
    stream.place = waited_for_.size();
    waited_for_.push_back(&stream);  // add_use has made room
  }
  // Nearly always at the end: positions are taken as time goes by.
  UsedItem* before = stream.last;
  while (before != nullptr && before->uses.back().sequence > use.sequence) before = before->previous_waiting;
  UsedItem* after = before == nullptr ? stream.first : before->next_waiting;
  item.previous_waiting = before;
  item.next_waiting = after;
  (before == nullptr ? stream.first : before->next_waiting) = &item;
  (after == nullptr ? stream.last : after->previous_waiting) = &item;
  ++waiting_;
}

void PendingUses::unlink(UsedItem& item) noexcept {
  UsingStream& stream = *item.uses.back().stream;
  UsedItem* before = item.previous_waiting;
  UsedItem* after = item.next_waiting;
  (before == nullptr ? stream.first : before->next_waiting) = after;
  (after == nullptr ? stream.last : after->previous_waiting) = before;
  item.previous_waiting = item.next_waiting = nullptr;
  --waiting_;
  if (stream.first != nullptr) return;
  waited_for_[stream.place] = waited_for_.back();
  waited_for_[stream.place]->place = stream.place;
  waited_for_.pop_back();
}

void PendingUses::forget_last_use(UsedItem& item) noexcept {
  UsingStream& stream = *item.uses.back().stream;
  item.uses.pop_back();
  if (--stream.uses == 0) ++idle_;
  if (--stream.waiting_uses == 0) drop_fences(stream, std::numeric_limits<std::uint64_t>::max());
}

bool PendingUses::drop_complete(UsedItem& item) noexcept {
  while (!item.uses.empty() && item.uses.back().sequence <= complete_bound(*item.uses.back().stream)) {
    forget_last_use(item);
  }
  return item.uses.empty();
}

void PendingUses::drop_fences(UsingStream& stream, std::uint64_t through) noexcept {
  auto& fences = stream.fences;
  auto kept = fences.begin();
  for (; kept != fences.end() && kept->sequence <= through; ++kept) source_.release_fence(kept->fence);
  fences.erase(fences.begin(), kept);
}

void PendingUses::forget_idle_streams() noexcept {
  for (auto it = streams_.begin(); it != streams_.end();) {
    it = it->second->uses == 0 ? streams_.erase(it) : std::next(it);
  }
  idle_ = 0;
}

void PendingUses::record_fences(Lock& lock, const UsedItem& item) noexcept {
  std::vector<Position> wanted;
  try {
    for (const Use& use : item.uses) {
      const auto& fences = use.stream->fences;
      if (fences.empty() || fences.back().sequence < use.sequence) wanted.push_back({use.stream->uid, use.sequence});
    }
  } catch (const std::bad_alloc&) {
    return;  // the positions alone still tell, later
  }
  for (const Position& position : wanted) {
    Fence fence;
    lock.unlock();
    const bool recorded = source_.record_fence(position.stream, fence).ok();
    lock.lock();
    if (recorded) keep_fence(position, fence);
  }
}

void PendingUses::keep_fence(Position position, Fence fence) noexcept {
  if (!fence) return;
  const auto found = streams_.find(position.stream);
  if (found == streams_.end() || found->second->waiting_uses == 0 ||
      position.sequence <= found->second->known_complete) {
    source_.release_fence(fence);
    return;
  }
  auto& fences = found->second->fences;
  const auto at = std::upper_bound(fences.begin(), fences.end(), position.sequence,
                                   [](std::uint64_t s, const UsingStream::FenceAt& f) { return s < f.sequence; });
  try {
    fences.insert(at, {position.sequence, fence});
  } catch (const std::bad_alloc&) {
    source_.release_fence(fence);
  }
}

bool PendingUses::poll_fences(Lock& lock) {
  bool any = false;
  std::vector<TakenFence> taken;
  for (bool progress = needs_fences_; progress;) {
    progress = false;
    taken.clear();
    taken.reserve(waited_for_.size());
    for (UsingStream* stream : waited_for_) {
      complete_bound(*stream);
      if (stream->fences.empty()) continue;
      taken.push_back({stream->uid, stream->fences.front(), false});
      stream->fences.erase(stream->fences.begin());
    }
    lock.unlock();
    for (TakenFence& t : taken) progress |= (t.done = source_.fence_done(t.at.fence));
    lock.lock();
    for (const TakenFence& t : taken) give_back(t);
    any |= progress;
  }
  return any;
}

bool PendingUses::wait(Lock& lock, const std::vector<Position>& others) {
  // Every use of every item, not only the one it waits for just now.
  std::unordered_map<StreamUid, std::uint64_t> last;
  for (const Position& position : others) last[position.stream] = std::max(last[position.stream], position.sequence);
  for (UsingStream* stream : waited_for_) {
    for (const UsedItem* item = stream->first; item != nullptr; item = item->next_waiting) {
      for (const Use& use : item->uses) {
        last[use.stream->uid] = std::max(last[use.stream->uid], use.sequence);
      }
    }
  }
  std::vector<TakenFence> taken;
  taken.reserve(last.size());
  for (const auto& [uid, sequence] : last) {
    if (sequence <= source_.completed(uid)) continue;
    TakenFence t{uid, {sequence, {}}, false};
    if (const auto found = streams_.find(uid); found != streams_.end()) {
      auto& fences = found->second->fences;
      if (!fences.empty() && fences.back().sequence >= sequence) {
        t.at = fences.back();
        fences.pop_back();
      }
    }
    taken.push_back(t);
  }
  if (taken.empty()) return false;
  lock.unlock();
  for (TakenFence& t : taken) t.done = source_.wait({t.stream, t.at.sequence}, t.at.fence).ok();
  lock.lock();
  for (const TakenFence& t : taken) give_back(t);
  return true;
}

void PendingUses::give_back(const TakenFence& taken) noexcept {
  const auto found = streams_.find(taken.stream);
  if (found != streams_.end() && taken.done) {
    found->second->known_complete = std::max(found->second->known_complete, taken.at.sequence);
  }
  keep_fence({taken.stream, taken.at.sequence}, taken.at.fence);
}

}  // namespace mojo::memory

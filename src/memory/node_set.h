// What it is: NodeSet, an ordered set of objects whose tree nodes belong to the objects, so that putting an object in or
//   out allocates nothing and cannot fail. Only giving an object its node, once, can.
// Ordering: none. Threads: guarded by its owner. Errors: adopt throws std::bad_alloc; all else is noexcept.
#pragma once

#include <iterator>
#include <set>
#include <utility>

namespace mojo::memory {

// Less orders T, and T with Less::Key. T has a member `hook`.
template <typename T, typename Less>
class NodeSet {
  using Key = typename Less::Key;
  struct Compare {
    using is_transparent = void;
    bool operator()(const T* a, const T* b) const noexcept { return Less{}(*a, *b); }
    bool operator()(const T* a, const Key& b) const noexcept { return Less{}(*a, b); }
    bool operator()(const Key& a, const T* b) const noexcept { return Less{}(a, *b); }
  };
  using Set = std::set<T*, Compare>;

 public:
  using iterator = typename Set::iterator;

  class Hook {
   public:
    bool linked() const noexcept { return linked_; }

   private:
    friend class NodeSet;
    bool linked_ = false;
    iterator at_;
    typename Set::node_type node_;
  };

  // Gives `item` the node with which it will be inserted. Once an item.
  void adopt(T& item) {
    Set maker;
    maker.insert(&item);
    item.hook.node_ = maker.extract(maker.begin());
  }
  void insert(T& item) noexcept {
    item.hook.at_ = set_.insert(std::move(item.hook.node_)).position;
    item.hook.linked_ = true;
  }
  void erase(T& item) noexcept {
    item.hook.node_ = set_.extract(item.hook.at_);
    item.hook.linked_ = false;
  }
  // After the key of a linked item has changed: moves it to its place, mostly by leaving it where it is.
  void reposition(T& item) noexcept {
    const iterator at = item.hook.at_;
    const bool after_previous = at == set_.begin() || Less{}(**std::prev(at), item);
    const bool before_next = std::next(at) == set_.end() || Less{}(item, **std::next(at));
    if (after_previous && before_next) return;
    erase(item);
    insert(item);
  }

  iterator lower_bound(const Key& key) const noexcept { return set_.lower_bound(key); }
  iterator begin() const noexcept { return set_.begin(); }
  iterator end() const noexcept { return set_.end(); }
  bool empty() const noexcept { return set_.empty(); }
  std::size_t size() const noexcept { return set_.size(); }

 private:
  Set set_;
};

}  // namespace mojo::memory

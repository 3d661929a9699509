#include "drivers/host/op.h"

#include <mutex>
#include <new>

namespace mojo::host {

Op* OpPool::take_chunk() noexcept {
  std::lock_guard guard(lock_);
  if (chunks_ == nullptr) {
    try {
      auto slab = std::make_unique<Op[]>(chunk * chunks_a_slab);
      Op* nodes = slab.get();
      slabs_.push_back(std::move(slab));
      for (int c = 0; c < chunks_a_slab; ++c) {
        Op* first = nodes + c * chunk;
        for (int i = 0; i + 1 < chunk; ++i) first[i].next = first + i + 1;
        first->next_chunk = chunks_;
        chunks_ = first;
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  Op* chain = chunks_;
  chunks_ = chain->next_chunk;
  return chain;
}

void OpPool::give_chunk(Op* chain) noexcept {
  std::lock_guard guard(lock_);
  chain->next_chunk = chunks_;
  chunks_ = chain;
}

void OpPool::give(Op* chain) noexcept {
  std::lock_guard guard(lock_);
  while (chain != nullptr) {
    Op* op = chain;
    chain = chain->next;
    op->next = loose_;
    loose_ = op;
    if (++loose_count_ == chunk) {
      loose_->next_chunk = chunks_;
      chunks_ = loose_;
      loose_ = nullptr;
      loose_count_ = 0;
    }
  }
}

}  // namespace mojo::host

#include "torch_backend/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "mojo/process.h"
#include "torch_backend/current.h"

namespace mojo::torch_backend {

namespace {

constexpr std::size_t state_bytes = 2 * sizeof(std::uint64_t);

// The finalizer of MurmurHash3 with the constants of SplitMix64: a bijection in which every bit of the result depends
// on every bit of the argument.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::vector<at::Generator>& default_generators() {
  static auto* const generators = [] {
    auto* const made = new std::vector<at::Generator>;  // leaked: used until the last thread ends
    const c10::DeviceIndex count = device_count();
    for (c10::DeviceIndex i = 0; i < count; ++i) {
      made->push_back(new_generator(i));
      made->back().seed();
    }
    return made;
  }();
  return *generators;
}

}  // namespace

MojoGeneratorImpl::MojoGeneratorImpl(c10::DeviceIndex index)
    : GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<State>()) {}

void MojoGeneratorImpl::set_current_seed(std::uint64_t seed) { state_->set(seed, 0); }

std::uint64_t MojoGeneratorImpl::current_seed() const { return state_->seed; }

std::uint64_t MojoGeneratorImpl::seed() {
  const std::uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

void MojoGeneratorImpl::set_offset(std::uint64_t offset) { state_->offset = offset; }

std::uint64_t MojoGeneratorImpl::get_offset() const { return state_->offset; }

void MojoGeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == static_cast<std::int64_t>(state_bytes), "mojo backend: RNG state has ", state.numel(),
              " bytes, expected ", state_bytes, " (seed and offset)");
  std::uint64_t words[2];
  std::memcpy(words, state.data(), state_bytes);
  state_->set(words[0], words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> MojoGeneratorImpl::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({static_cast<std::int64_t>(state_bytes)}, at::kByte);
  const std::uint64_t words[2] = {state_->seed, state_->offset};
  std::memcpy(state.mutable_data_ptr(), words, state_bytes);
  return state.getIntrusivePtr();
}

void MojoGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* const ours = dynamic_cast<const MojoGeneratorImpl*>(other.get());
  TORCH_CHECK(ours != nullptr, "mojo backend: graphsafe_set_state: expected a generator of a mojo device");
  state_ = ours->state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> MojoGeneratorImpl::graphsafe_get_state() const {
  auto sharing = c10::make_intrusive<MojoGeneratorImpl>(device_.index());
  sharing->state_ = state_;
  return sharing;
}

std::uint64_t MojoGeneratorImpl::take_call_seed() {
  // Mixed twice, or the calls of two near seeds would be the same sequence, shifted.
  return mix(mix(state_->seed) + 0x9e3779b97f4a7c15u * state_->offset++);
}

c10::DeviceType MojoGeneratorImpl::device_type() { return torch_backend::device_type; }

MojoGeneratorImpl* MojoGeneratorImpl::clone_impl() const {
  auto* const copy = new MojoGeneratorImpl(device_.index());
  copy->state_->set(state_->seed, state_->offset);
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  return default_generators()[static_cast<std::size_t>(checked_device(index))];
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<MojoGeneratorImpl>(checked_device(index));
}

std::uint64_t reserve_call_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex index) {
  const at::Generator& used = generator.has_value() && generator->defined() ? *generator : default_generator(index);
  TORCH_CHECK(used.device().type() == device_type, "Expected a '", device_type,
              "' device type for generator but found '", used.device().type(), "'");
  auto* const ours = at::check_generator<MojoGeneratorImpl>(used);
  const c10::Device expected(device_type, checked_device(index));
  TORCH_CHECK(ours->device() == expected, "Expected a '", expected, "' generator device but found '", ours->device(),
              "'");
  const std::lock_guard lock(ours->mutex_);
  return ours->take_call_seed();
}

void manual_seed_all(std::uint64_t seed) {
  if (in_bad_fork()) {
    // Another thread may have held a mutex when the process was forked, and this child has no other thread.
    for (const at::Generator& generator : default_generators()) {
      generator.unsafeGetGeneratorImpl()->set_current_seed(seed);
    }
    return;
  }
  for (const at::Generator& generator : default_generators()) {
    auto* const impl = generator.unsafeGetGeneratorImpl();
    const std::lock_guard lock(impl->mutex_);
    impl->set_current_seed(seed);
  }
}

}  // namespace mojo::torch_backend

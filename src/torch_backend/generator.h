// What it is: random number generators of the device type. A generator is a seed and an offset that counts the calls
//   made with it; each call draws from a sequence of its own, so values depend on the seed and the order of the calls
//   only, never on streams or schedules (M-11).
// Ordering: the offset is taken at the call, not when the work runs.
// Threads: a generator's mutex guards its state; reserve_call_seed takes it, the other methods leave it to the caller,
//   as torch's own generators do.
// Errors: c10::Error for a state of the wrong size or type and for a generator of another device.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "mojo/export.h"

namespace mojo::torch_backend {

// get_state gives, and set_state takes, a CPU tensor of 16 bytes: the seed, then the offset, each a 64-bit integer in
// the machine's byte order.
class MojoGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit MojoGeneratorImpl(c10::DeviceIndex index);

  void set_current_seed(std::uint64_t seed) override;  // and sets the offset to 0
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;  // a seed from the system's randomness
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The state itself, shared: a later call with either generator advances both.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  // Advances the offset by one call and returns the seed of that call's own sequence. The caller holds the mutex.
  std::uint64_t take_call_seed();

  static c10::DeviceType device_type();

 private:
  // Atomic, since generators that share a state have a mutex each.
  struct State {
    std::atomic<std::uint64_t> seed{c10::default_rng_seed_val}, offset{0};
    void set(std::uint64_t new_seed, std::uint64_t new_offset) noexcept {
      seed = new_seed;
      offset = new_offset;
    }
  };

  MojoGeneratorImpl* clone_impl() const override;

  std::shared_ptr<State> state_;
};

// The default generator of a device (-1: the current one); exists without the device being opened.
MOJO_API const at::Generator& default_generator(c10::DeviceIndex index);
// A new generator with torch's default seed.
at::Generator new_generator(c10::DeviceIndex index);

// Takes one call from `generator`, or from the default one of device `index` without it, and returns the seed for a
// generator that serves this call alone.
std::uint64_t reserve_call_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex index);

// Seeds all default generators. In a process forked from one that had used a device it only remembers the seed.
MOJO_API void manual_seed_all(std::uint64_t seed);

}  // namespace mojo::torch_backend

#include "torch_backend/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "mojo/device_event.h"
#include "torch_backend/current.h"
#include "torch_backend/device_allocator.h"
#include "torch_backend/dtypes.h"
#include "torch_backend/errors.h"
#include "torch_backend/torch_version.h"

namespace mojo::torch_backend {

namespace {

// The event behind torch's opaque pointer, for the length of a call: torch stays the owner, also if the call throws.
class BorrowedEvent {
 public:
  explicit BorrowedEvent(void* event) noexcept
      : event_(DeviceEvent::adopt(static_cast<mojo::detail::EventState*>(event))) {}
  BorrowedEvent(const BorrowedEvent&) = delete;
  BorrowedEvent& operator=(const BorrowedEvent&) = delete;
  ~BorrowedEvent() { event_.release(); }

  DeviceEvent& operator*() noexcept { return event_; }
  DeviceEvent* operator->() noexcept { return &event_; }

 private:
  DeviceEvent event_;
};

// Streams handed out in turn, each made at its first use.
class StreamPool {
 public:
  DeviceStream next(DeviceContext context, bool high_priority) {
    Level& level = levels_[high_priority ? 1 : 0];
    const unsigned turn = level.turn.fetch_add(1, std::memory_order_relaxed) % streams_a_level;
    const std::lock_guard lock(level.mutex);
    mojo::detail::StreamState*& state = level.streams[turn];
    if (state == nullptr) {
      state = context.create_stream({.priority = high_priority ? context.priority_range().greatest : 0}).state();
    }
    return DeviceStream::from_state(state);
  }

 private:
  static constexpr unsigned streams_a_level = 32;
  struct Level {
    std::array<mojo::detail::StreamState*, streams_a_level> streams{};
    std::atomic<unsigned> turn{0};
    std::mutex mutex;
  };
  std::array<Level, 2> levels_;
};

StreamPool& stream_pool(c10::DeviceIndex index) {
  static auto* const pools = new std::array<std::atomic<StreamPool*>, max_devices>{};  // leaked: process lifetime
  std::atomic<StreamPool*>& place = (*pools)[static_cast<std::size_t>(index)];
  StreamPool* pool = place.load(std::memory_order_acquire);
  if (pool == nullptr) {
    auto made = std::make_unique<StreamPool>();
    if (place.compare_exchange_strong(pool, made.get(), std::memory_order_acq_rel)) pool = made.release();
  }
  return *pool;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return device_type; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override { return c10::Device(device_type, current_device()); }
  void setDevice(c10::Device device) const override {
    check_type(device);
    if (device.index() != current_device()) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device_unchecked(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count_or_zero(); }
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override;

  c10::Stream getStream(c10::Device device) const override {
    const c10::DeviceIndex index = checked_device(device.index());
    return to_c10(index, current_stream_id(index));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return to_c10(checked_device(device.index()), 0); }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const c10::DeviceIndex index = checked_device(device.index());
    return translated([&] { return to_c10(context(index).create_stream({.priority = priority})); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    const c10::DeviceIndex index = checked_device(device.index());
    return translated([&] { return to_c10(stream_pool(index).next(context(index), high_priority)); });
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    check_type(stream.device());
    const c10::DeviceIndex index = checked_device(stream.device_index());
    return to_c10(index, exchange_stream_id(index, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return translated([&] { return from_c10(stream).native_handle(); });
  }
  bool queryStream(const c10::Stream& stream) const override {
    return translated([&] { return from_c10(stream).query(); });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    translated([&] { from_c10(stream).synchronize(); });
  }
  bool isStreamCapturing(const c10::Stream&) const MOJO_TORCH_OVERRIDE_SINCE_2_12 { return false; }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex index = checked_device(device);
    if (DeviceContext::is_open(index)) translated([&] { context(index).synchronize(); });
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override;
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    BorrowedEvent borrowed(event);
    translated([&] { from_c10(stream).enqueue_wait_for(*borrowed); });
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    BorrowedEvent borrowed(event);
    return translated([&] { return borrowed->query(); });
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    BorrowedEvent borrowed(event);
    translated([&] { borrowed->synchronize(); });
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "Both events must be recorded before calculating elapsed time.");
    if (start == end) {  // two borrowers of one event would both own it
      return 0.0;
    }
    BorrowedEvent first(start);
    BorrowedEvent second(end);
    return translated([&] { return first->elapsed_ms(*second); });
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event != nullptr) DeviceEvent::adopt(static_cast<mojo::detail::EventState*>(event));
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) record_stream(data, from_c10(stream));
  }

 private:
  static void check_type(c10::Device device) {
    TORCH_CHECK(device.type() == device_type, "mojo backend: expected a mojo device, got ", device);
  }
};

void Guard::record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const {
  TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device index ", static_cast<int>(device),
              " does not match recording stream's device index ", static_cast<int>(stream.device_index()), ".");
  const DeviceStream queue = from_c10(stream);
  if (*event == nullptr) {
    translated([&] {
      // torch's own default is without timing, "what the backend would choose" is with.
      DeviceEvent made =
          context(stream.device_index()).create_event({.timing = flag == c10::EventFlag::BACKEND_DEFAULT});
      queue.record_event(made);
      *event = made.release();
    });
    return;
  }
  BorrowedEvent borrowed(*event);
  translated([&] { queue.record_event(*borrowed); });
}

c10::DeviceCapability Guard::getDeviceCapability(c10::Device device) const {
  checked_device(device.index());
  std::uint64_t bits = 0;
  for (unsigned type = 0; type < c10::NUMBER_OF_DEVICE_CAPABILITIES; ++type) {
    if (is_convertible(static_cast<c10::ScalarType>(type))) bits |= std::uint64_t{1} << type;
  }
  c10::DeviceCapability capability;
  capability.capability_data.capability_bits = bits;
  return capability;
}

}  // namespace

const c10::impl::DeviceGuardImplInterface* device_guard() noexcept {
  static const auto* const guard = new Guard;  // leaked: torch keeps the pointer until the process ends
  return guard;
}

}  // namespace mojo::torch_backend

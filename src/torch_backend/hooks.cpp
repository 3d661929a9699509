#include "torch_backend/hooks.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "mojo/pinned.h"
#include "torch_backend/current.h"
#include "torch_backend/device_allocator.h"
#include "torch_backend/errors.h"
#include "torch_backend/generator.h"
#include "torch_backend/host_allocator.h"

namespace mojo::torch_backend {

namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override {}  // devices open at their first use
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count_or_zero() > 0; }
  // "Used by this process" is what the autograd engine means: it asks only such devices for their current streams.
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < device_count_or_zero() && DeviceContext::is_open(index);
  }

  c10::DeviceIndex deviceCount() const override { return device_count_or_zero(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex previous = current_device();
    set_current_device(index);
    return previous;
  }
  // Switching opens nothing here, so the two are one.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }

  bool isPinnedPtr(const void* data) const override { return pinned_contains(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }

  at::Device getDeviceFromPtr(void* data) const override {
    const c10::DeviceIndex index = find_device(data);
    TORCH_CHECK(index >= 0, "mojo backend: the pointer ", data, " is not memory of a mojo device");
    return at::Device(device_type, index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override;
};

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  auto* const impl = storage.unsafeGetStorageImpl();
  const c10::DeviceIndex index = checked_device(storage.device().index());
  c10::DataPtr data = allocate(bytes, index);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (kept != 0 && storage.data() != nullptr) {
    const DeviceStream stream = current_stream(index);
    // The old memory goes back to the stream it was allocated on, which may be another than the one that reads it here.
    record_stream(storage.data_ptr(), stream);
    translated([&] {
      stream.copy_device_to_device(DevicePtr::from_opaque(data.get()), DevicePtr::from_opaque(storage.data()), kept);
    });
  }
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

}  // namespace

at::PrivateUse1HooksInterface* hooks() noexcept {
  static auto* const hooks = new Hooks;  // leaked: torch keeps the pointer until the process ends
  return hooks;
}

}  // namespace mojo::torch_backend

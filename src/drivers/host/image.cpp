#include "drivers/host/image.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>

namespace mojo::host {
namespace {

// A file that has no name anywhere, open for as long as this lives.
class PrivateFile {
 public:
  ~PrivateFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Status write(std::span<const std::byte> bytes) {
    descriptor_ = memfd_create("mojo-image", MFD_CLOEXEC);
    if (descriptor_ < 0) return failed("make a file in memory");
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return failed("write a file in memory");
      done += static_cast<std::size_t>(wrote);
    }
    return {};
  }
  // Never the same twice, though descriptors are used again: the loader takes a name that it knows for what it has.
  std::string name() const {
    static std::atomic<std::uint32_t> next{1};
    std::string path = "/proc/self/fd";
    for (std::uint32_t number = next.fetch_add(1); number != 0; number >>= 1) path += number & 1 ? "/." : "/";
    return path + "/./" + std::to_string(descriptor_);
  }

 private:
  static Status failed(const char* what) {
    return {StatusCode::unavailable, std::string("host driver: load_module: cannot ") + what + ": " + strerror(errno)};
  }
  int descriptor_ = -1;
};

}  // namespace

HostImage::HostImage(void* handle) noexcept
    : handle_(handle), has_barrier_(dlsym(handle, "mojo_host_barrier") != nullptr) {}

HostImage::~HostImage() { dlclose(handle_); }

Status HostImage::load(std::span<const std::byte> bytes, std::shared_ptr<const HostImage>& out) {
  if (bytes.size() < 4 || memcmp(bytes.data(), "\177ELF", 4) != 0) {
    return {StatusCode::invalid_argument, "host driver: load_module: the image is no shared object"};
  }
  PrivateFile file;
  MOJO_RETURN_IF_ERROR(file.write(bytes));
  void* const handle = dlopen(file.name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return {StatusCode::invalid_argument,
            std::string("host driver: load_module: ") + (why != nullptr ? why : "the image cannot be loaded")};
  }
  try {
    out.reset(new HostImage(handle));
  } catch (...) {
    dlclose(handle);
    throw;
  }
  return {};
}

const MojoHostEntry* HostImage::entry(std::string_view name) const {
  return static_cast<const MojoHostEntry*>(dlsym(handle_, ("mojo_entry_" + std::string(name)).c_str()));
}

Status HostModule::kernel(std::string_view name, std::unique_ptr<driver::Kernel>& out) noexcept {
  try {
    const MojoHostEntry* entry = image_->entry(name);
    if (entry == nullptr) {
      return {StatusCode::invalid_argument,
              "host driver: the module has no kernel '" + std::string(name) + "', or was compiled without that entry"};
    }
    out = std::make_unique<HostKernel>(image_, *entry);
    return {};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "host driver: no host memory for a kernel"};
  }
}

}  // namespace mojo::host

#include "drivers/host/image.h"

#include <dlfcn.h>
#include <elf.h>
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

// The loader maps what the headers speak of, and a part that is not there would end the process.
bool whole_shared_object(std::span<const std::byte> bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return false;
  memcpy(&header, bytes.data(), sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  const auto within = [&](std::uint64_t offset, std::uint64_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (!within(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize)) return false;
  if (header.e_phentsize != sizeof(Elf64_Phdr) || !within(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr))) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    memcpy(&part, bytes.data() + header.e_phoff + i * sizeof part, sizeof part);
    if (!within(part.p_offset, part.p_filesz)) return false;
  }
  return true;
}

}  // namespace

HostImage::HostImage(void* handle) noexcept
    : handle_(handle), has_barrier_(dlsym(handle, "mojo_host_barrier") != nullptr) {}

HostImage::~HostImage() { dlclose(handle_); }

Status HostImage::load(std::span<const std::byte> bytes, std::shared_ptr<const HostImage>& out) {
  if (!whole_shared_object(bytes)) {
    return {StatusCode::invalid_argument, "host driver: load_module: the image is no shared object, or not all of one"};
  }
  PrivateFile file;
  MOJO_RETURN_IF_ERROR(file.write(bytes));
  void* const handle = dlopen(file.name().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return {StatusCode::invalid_argument,
            std::string("host driver: load_module: ") + (why != nullptr ? why : "the image cannot be loaded")};
  }
  std::unique_ptr<HostImage> image(new (std::nothrow) HostImage(handle));
  if (image == nullptr) {
    dlclose(handle);
    return {StatusCode::out_of_memory, "host driver: no host memory for a module"};
  }
  out = std::move(image);  // which still has it if that throws
  return {};
}

HostKernel::HostKernel(std::shared_ptr<const HostImage> of, const MojoHostEntry& given)
    : image(std::move(of)), entry(given) {
  for (unsigned i = 0; i < given.argument_count; ++i) {
    const MojoHostParameter& each = given.parameters[i];
    parameters_.push_back({static_cast<ParameterKind>(each.kind), each.size,
                           static_cast<ParameterKind>(each.element_kind), each.element_size});
  }
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

// Device functions: compiling them, launching them.
#include "mojo/device_function.h"

#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "jit/compile_cache.h"
#include "jit/dialect.h"
#include "mojo/device_context.h"
#include "mojo/error.h"
#include "runtime/buffer_check.h"
#include "runtime/device_state.h"
#include "runtime/function_state.h"
#include "runtime/parameter_check.h"
#include "runtime/process_compile_cache.h"

namespace mojo {
namespace {

driver::Dim3 to_driver(const Dim& dim) noexcept { return {dim.x, dim.y, dim.z}; }

// Room for `count` elements: in place for a few, else in memory made here.
template <class T, std::size_t few>
class Room {
 public:
  explicit Room(std::size_t count) {
    if (count > few) many_.resize(count);
  }
  T* data() noexcept { return many_.empty() ? reinterpret_cast<T*>(few_) : many_.data(); }

 private:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  alignas(T) std::byte few_[few * sizeof(T)];  // not cleared: a launch has other things to do
  std::vector<T> many_;
};

Status check_function(const char* call, const detail::FunctionState* function, const detail::StreamState& stream) {
  if (function == nullptr) return {StatusCode::invalid_argument, std::string(call) + ": the function is null"};
  if (&function->device() == &stream.device()) [[likely]]
    return {};
  return {StatusCode::invalid_argument, std::string(call) + ": '" + function->name() + "' was compiled for device " +
                                            std::to_string(function->device().index()) +
                                            " and cannot run on a stream of device " +
                                            std::to_string(stream.device().index())};
}

Status queue_launch(detail::StreamState& stream, const detail::FunctionState& function, const LaunchConfig& config,
                    std::span<const void* const> arguments, std::span<const std::uint32_t> sizes,
                    std::span<const Access> accesses) {
  driver::Launch launch;
  launch.kernel = &function.kernel();
  launch.grid = to_driver(config.grid);
  launch.block = to_driver(config.block);
  launch.cluster = to_driver(config.cluster.value_or(Dim{}));
  launch.shared_memory_bytes = config.shared_memory_bytes;
  launch.arguments = arguments;
  launch.argument_sizes = sizes;
  launch.accesses = accesses;
  std::vector<driver::LaunchAttribute> attributes;
  for (const LaunchAttribute& attribute : config.attributes) attributes.push_back({attribute.id, attribute.value});
  launch.attributes = attributes;
  std::vector<driver::ConstantMapping> constants;
  for (const ConstantMemoryMapping& mapping : config.constant_memory)
    constants.push_back({mapping.name, mapping.bytes});
  launch.constants = constants;
  return stream.enqueue(
      [&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.launch(launch, number); });
}

Status untyped_launch(detail::StreamState& stream, const detail::FunctionState* function, const LaunchConfig& config,
                      std::span<const void* const> arguments, std::span<const std::uint32_t> sizes,
                      std::span<const Access> accesses) {
  MOJO_RETURN_IF_ERROR(check_function("enqueue", function, stream));
  if (arguments.size() != sizes.size()) {
    return {StatusCode::invalid_argument, "enqueue: " + std::to_string(arguments.size()) + " arguments and " +
                                              std::to_string(sizes.size()) + " sizes"};
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == nullptr) {
      return {StatusCode::invalid_argument, "enqueue: argument " + std::to_string(i) + " is null"};
    }
  }
  for (const Access& access : accesses) {
    const detail::RawBuffer buffer{access.ptr, access.bytes, 1, stream.device().index(), access.mode};
    MOJO_RETURN_IF_ERROR(runtime::check_buffer("enqueue", stream, buffer));
  }
  return queue_launch(stream, *function, config, arguments, sizes, accesses);
}

// Loads the image, and finds its function.
Status load(driver::Device& device, const jit::CompiledImage& image, std::string_view name,
            std::unique_ptr<driver::Kernel>& out) {
  std::unique_ptr<driver::Module> module;
  MOJO_RETURN_IF_ERROR(device.load_module(image.bytes, module));
  return module->kernel(name, out);
}

std::shared_ptr<detail::FunctionState> compile(detail::DeviceState& device, std::string_view source,
                                               std::string_view name, std::span<const std::string> options) {
  throw_if_failed(runtime::usable());
  if (name.empty()) throw_status({StatusCode::invalid_argument, "compile_function: the name of the function is empty"});
  driver::Compiler* compiler = nullptr;
  throw_if_failed(device.driver().compiler(compiler));
  const std::vector<std::string> entries{std::string(name)};
  driver::CompileRequest request;
  request.source = source;
  request.entries = entries;
  request.headers = jit::dialect_headers();
  request.options = options;
  jit::CompileCache& cache = runtime::process_compile_cache();
  std::unique_ptr<driver::Kernel> kernel;
  for (bool again = false;; again = true) {
    jit::CompiledImagePtr image;
    throw_if_failed(cache.get(*compiler, request, image));
    Status loaded = load(device.driver(), *image, name, kernel);
    if (loaded.ok()) break;
    // One that was kept since another day may need what is no longer there.
    const bool images_fault = loaded.code() == StatusCode::invalid_argument;
    if (again || !images_fault || !cache.reject(*compiler, request, image)) throw_if_failed(loaded);
  }
  return std::make_shared<detail::FunctionState>(device, entries.front(), std::move(kernel));
}

}  // namespace

std::string UntypedFunction::name() const { return state_ == nullptr ? std::string() : state_->name(); }
int UntypedFunction::device_index() const noexcept { return state_ == nullptr ? -1 : state_->device().index(); }

UntypedFunction DeviceContext::compile_untyped_function(std::string_view source, std::string_view name,
                                                        std::span<const std::string> options) const {
  return UntypedFunction::adopt(compile(*state_, source, name, options));
}

UntypedFunction DeviceContext::compile_described_function(std::string_view source, std::string_view name,
                                                          std::span<const std::string> options,
                                                          std::span<const ParameterDescription> parameters) const {
  auto function = compile(*state_, source, name, options);
  std::span<const ParameterDescription> compiled;
  if (function->kernel().parameters(compiled)) {
    throw_if_failed(runtime::check_parameters(name, parameters, compiled));
  }
  return UntypedFunction::adopt(std::move(function));
}

void DeviceStream::launch(const UntypedFunction& function, const LaunchConfig& config,
                          std::span<const void* const> arguments, std::span<const std::uint32_t> argument_sizes,
                          std::span<const detail::RawBuffer> buffers) const {
  const detail::FunctionState* state = function.state();
  throw_if_failed(check_function("enqueue_function", state, *state_));
  Room<Access, 8> room(buffers.size());
  Access* const accesses = room.data();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    throw_if_failed(runtime::check_buffer("enqueue_function", *state_, buffers[i]));
    ::new (accesses + i) Access{buffers[i].ptr, buffers[i].bytes(), buffers[i].mode};
  }
  throw_if_failed(queue_launch(*state_, *state, config, arguments, argument_sizes, {accesses, buffers.size()}));
}

std::optional<std::string> DeviceStream::enqueue(const UntypedFunction& function, const LaunchConfig& config,
                                                 std::span<const void* const> arguments,
                                                 std::span<const std::uint32_t> argument_sizes,
                                                 std::span<const Access> accesses) const {
  try {
    const Status status = untyped_launch(*state_, function.state(), config, arguments, argument_sizes, accesses);
    if (status.ok()) return std::nullopt;
    return status.message();
  } catch (const std::bad_alloc&) {
    return "no host memory";  // so short that it takes none
  }
}

}  // namespace mojo

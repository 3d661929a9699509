#include "runtime/parameter_check.h"

#include <string>

namespace mojo::runtime {
namespace {

std::string name_of(ParameterKind kind, std::uint32_t bytes) {
  switch (kind) {
    case ParameterKind::signed_integer: return "int" + std::to_string(8 * bytes);
    case ParameterKind::unsigned_integer: return "uint" + std::to_string(8 * bytes);
    case ParameterKind::floating:
      if (bytes == 4 || bytes == 8) return bytes == 4 ? "float" : "double";
      return "a floating-point number of " + std::to_string(bytes) + " bytes";
    case ParameterKind::half: return "half";
    case ParameterKind::bfloat16: return "bfloat16";
    case ParameterKind::boolean: return "bool";
    case ParameterKind::pointer: return "a pointer";
    default: return "a class of " + std::to_string(bytes) + " bytes";
  }
}

std::string name_of(const ParameterDescription& parameter) {
  const bool constant = parameter.kind == ParameterKind::buffer_of_const;
  if (!constant && parameter.kind != ParameterKind::buffer) return name_of(parameter.kind, parameter.bytes);
  return std::string(constant ? "Buffer<const " : "Buffer<") + name_of(parameter.element, parameter.element_bytes) +
         ">";
}

// An address, as a number or in a class of its own (DevicePtr), for a pointer.
bool fits(ParameterKind stated, std::uint64_t stated_bytes, ParameterKind compiled, std::uint64_t compiled_bytes) {
  if (stated_bytes != compiled_bytes) return false;
  return stated == compiled || (compiled == ParameterKind::pointer &&
                                (stated == ParameterKind::other || stated == ParameterKind::unsigned_integer));
}

bool fits(const ParameterDescription& stated, const ParameterDescription& compiled) {
  if (stated.kind == ParameterKind::buffer || stated.kind == ParameterKind::buffer_of_const) {
    return stated.kind == compiled.kind &&
           fits(stated.element, stated.element_bytes, compiled.element, compiled.element_bytes);
  }
  return fits(stated.kind, stated.bytes, compiled.kind, compiled.bytes);
}

}  // namespace

Status check_parameters(std::string_view function, std::span<const ParameterDescription> stated,
                        std::span<const ParameterDescription> compiled) {
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::invalid_argument, "compile_function: '" + std::string(function) + "' " + what);
  };
  if (stated.size() != compiled.size()) {
    return wrong("takes " + std::to_string(compiled.size()) + " parameters in the source and " +
                 std::to_string(stated.size()) + " in the signature");
  }
  for (std::size_t i = 0; i < stated.size(); ++i) {
    if (fits(stated[i], compiled[i])) continue;
    return wrong("has another parameter " + std::to_string(i) + " (the first is 0) than the signature: " +
                 name_of(compiled[i]) + " in the source, " + name_of(stated[i]) + " in the signature");
  }
  return {};
}

}  // namespace mojo::runtime

#include "ops/engine_call.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>

#include <bit>
#include <cstring>

#include "torch_backend/current.h"

namespace mojo::ops {

namespace {

// What kind of value a word of the key stands for; in its low byte.
enum Tag : std::uint64_t {
  tag_none,
  tag_tensor,
  tag_undefined,
  tag_list,
  tag_integer,
  tag_float,
  tag_scalar,
  tag_bool,
  tag_complex,
  tag_string,
  tag_device,
  tag_other
};

}  // namespace

Call::Call(const OpPlan& op_plan, at::ArrayRef<c10::IValue> values) : plan(op_plan), arguments(values) {
  add_word(reinterpret_cast<std::uintptr_t>(&plan));
  add_word(static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype()) |
           (at::globalContext().deterministicAlgorithms() ? 256u : 0u) |
           (at::globalContext().deterministicAlgorithmsWarnOnly() ? 512u : 0u));
  bool other_device = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) add(arguments[i], plan.arguments[i], static_cast<int>(i));
  for (const CallTensor& t : tensors) {
    const at::Device place = t.tensor->device();
    if (place.type() == torch_backend::device_type) {
      if (device < 0) device = place.index();
      other_device |= device != place.index();
    } else {
      other_device |=
          !place.is_cpu() || t.written || (t.tensor->dim() != 0 && !plan.takes_cpu_tensors && plan.has_tensor_argument);
    }
  }
  if (C10_UNLIKELY(other_device)) throw_different_devices(*this);
  if (device < 0) {
    c10::DeviceIndex wanted = -1;
    bool has_device = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (plan.arguments[i].type != ArgumentType::device || !arguments[i].isDevice()) continue;
      wanted = arguments[i].toDevice().index();
      has_device = true;
    }
    if (!has_device && !tensors.empty()) throw_different_devices(*this);  // a generator alone brought the call here
    device = torch_backend::checked_device(wanted);
  }
}

void Call::add_tensor(const at::Tensor& tensor, const Argument& argument, int index) {
  if (!tensor.defined()) {
    add_word(tag_undefined);
    return;
  }
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl->layout() == at::kStrided, "mojo backend: ", plan.name, ": tensors of layout ",
                              impl->layout(), " are not supported on the device, only torch.strided");
  const bool on_device = impl->device_type() == torch_backend::device_type;
  tensors.push_back({&tensor, index, argument.written, on_device});
  const at::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
  const std::uint64_t bits = (impl->is_conj() ? 1u : 0u) | (impl->is_neg() ? 2u : 0u) |
                             (impl->is_wrapped_number() ? 4u : 0u) | (on_device ? 8u : 0u);
  const auto dtype = tensor.scalar_type();
  add_word(tag_tensor | bits << 8 | static_cast<std::uint64_t>(dtype) << 16 |
           static_cast<std::uint64_t>(sizes.size()) << 24);
  for (const std::int64_t size : sizes) add_word(static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : strides) add_word(static_cast<std::uint64_t>(stride));
  if (argument.type == ArgumentType::optional_tensor_list) has_mask |= is_mask(tensor);
}

void Call::add(const c10::IValue& value, const Argument& argument, int index) {
  if (value.isTensor()) {
    add_tensor(value.toTensor(), argument, index);
  } else if (value.isNone()) {
    add_word(tag_none);
  } else if (value.isInt()) {
    add_word(tag_integer);
    add_word(static_cast<std::uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    add_word(tag_bool | static_cast<std::uint64_t>(value.toBool()) << 8);
  } else if (value.isDouble()) {
    if (argument.type == ArgumentType::scalar && plan.has_tensor_argument) {
      add_word(tag_scalar);
    } else {
      add_word(tag_float);
      add_word(std::bit_cast<std::uint64_t>(value.toDouble()));
    }
  } else if (value.isList()) {
    const at::ArrayRef<c10::IValue> elements = value.toListRef();
    add_word(tag_list | static_cast<std::uint64_t>(elements.size()) << 8);
    for (const c10::IValue& element : elements) add(element, argument, index);
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    add_word(tag_complex);
    add_word(std::bit_cast<std::uint64_t>(number.real()));
    add_word(std::bit_cast<std::uint64_t>(number.imag()));
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    add_word(tag_string | static_cast<std::uint64_t>(text.size()) << 8);
    for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof(word), text.size() - at));
      add_word(word);
    }
  } else if (value.isDevice()) {
    const at::Device place = value.toDevice();
    add_word(tag_device | static_cast<std::uint64_t>(place.type()) << 8);
  } else {
    add_word(tag_other);
  }
}

void throw_different_devices(const Call& call) {
  // The first that is not a scalar, and the first that is elsewhere.
  const at::Tensor* first = nullptr;
  for (const CallTensor& t : call.tensors) {
    if (!t.on_device && t.tensor->device().is_cpu() && t.tensor->dim() == 0 && !t.written) continue;
    if (first == nullptr) first = t.tensor;
    TORCH_CHECK(t.tensor->device() == first->device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
                " and ", t.tensor->device(), "!");
  }
  for (const c10::IValue& value : call.arguments)
    if (value.isGenerator() && value.toGenerator().defined())
      TORCH_CHECK(false, "Expected a '", c10::DeviceType::CPU, "' device type for generator but found '",
                  value.toGenerator().device().type(), "'");
  TORCH_CHECK(false, "mojo backend: ", call.plan.name, ": the output is on ",
              first != nullptr ? first->device() : at::Device(at::kCPU), ", not on the device");
}

}  // namespace mojo::ops

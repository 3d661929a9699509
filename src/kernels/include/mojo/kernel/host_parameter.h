// What it is: how an image of the host device tells what its entries' parameters are, for a comparison with the types that
//   the host program states. The numbers are those of mojo::ParameterKind (include/mojo/parameter.h).
// Ordering: none. Threads: constants. Errors: none.
#pragma once

#include "mojo/kernel/host_abi.h"

namespace mojo {

template <class T>
struct Buffer;
struct half;
struct bfloat16;

namespace platform {

inline constexpr unsigned char kind_other = 0, kind_signed = 1, kind_unsigned = 2, kind_floating = 3, kind_half = 4,
                               kind_bfloat16 = 5, kind_boolean = 6, kind_pointer = 7, kind_buffer = 8,
                               kind_buffer_of_const = 9;

template <class T>
inline constexpr unsigned char kind_of_class = kind_other;
template <>
inline constexpr unsigned char kind_of_class<half> = kind_half;
template <>
inline constexpr unsigned char kind_of_class<bfloat16> = kind_bfloat16;
template <class T>
inline constexpr unsigned char kind_of_class<T*> = kind_pointer;

template <class T>
inline constexpr unsigned char kind_of_number = kind_other;
template <>
inline constexpr unsigned char kind_of_number<bool> = kind_boolean;
#define MOJO_KIND(type)                                 \
  template <>                                           \
  inline constexpr unsigned char kind_of_number<type> = \
      static_cast<type>(-1) < static_cast<type>(1) ? kind_signed : kind_unsigned;
MOJO_KIND(char)
MOJO_KIND(signed char)
MOJO_KIND(unsigned char)
MOJO_KIND(wchar_t)
MOJO_KIND(char8_t)
MOJO_KIND(char16_t)
MOJO_KIND(char32_t)
MOJO_KIND(short)
MOJO_KIND(unsigned short)
MOJO_KIND(int)
MOJO_KIND(unsigned int)
MOJO_KIND(long)
MOJO_KIND(unsigned long)
MOJO_KIND(long long)
MOJO_KIND(unsigned long long)
#undef MOJO_KIND
template <>
inline constexpr unsigned char kind_of_number<float> = kind_floating;
template <>
inline constexpr unsigned char kind_of_number<double> = kind_floating;
template <>
inline constexpr unsigned char kind_of_number<long double> = kind_floating;

template <class T>
constexpr unsigned char kind_of() {
  if constexpr (__is_enum(T)) {
    return kind_of_number<__underlying_type(T)>;
  } else {
    return kind_of_number<T> != kind_other ? kind_of_number<T> : kind_of_class<T>;
  }
}

template <class T>
struct Description {
  static constexpr MojoHostParameter value{sizeof(T), kind_of<T>(), kind_other, 0};
};
template <class T>
struct Description<Buffer<T>> {
  static constexpr MojoHostParameter value{sizeof(Buffer<T>), kind_buffer, kind_of<T>(), sizeof(T)};
};
template <class T>
struct Description<Buffer<const T>> {
  static constexpr MojoHostParameter value{sizeof(Buffer<const T>), kind_buffer_of_const, kind_of<T>(), sizeof(T)};
};

template <class T>
constexpr MojoHostParameter describe() {
  return Description<T>::value;
}

}  // namespace platform
}  // namespace mojo

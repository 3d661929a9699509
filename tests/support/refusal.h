// What it is: the text of the Error that a call of the C++ API throws, for tests of what is refused.
// Ordering: none. Threads: the test's own. Errors: a call that throws nothing fails the test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "mojo/error.h"

namespace mojo::test {

template <class F>
std::string refusal_of(F&& call, StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace mojo::test

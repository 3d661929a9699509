# How all of our code is compiled: standard, warnings, assertions, sanitizers, ccache.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "GCC ${CMAKE_CXX_COMPILER_VERSION} is too old: 11 or later is needed (set CXX)")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  message(FATAL_ERROR "Clang ${CMAKE_CXX_COMPILER_VERSION} is too old: 14 or later is needed (set CXX)")
endif()

# ccache where it is installed. A precompiled header changes what a cached result may depend on: pch_defines and
# time_macros are the settings with which ccache can use one at all.
option(MOJO_CCACHE "Compile through ccache when it is installed" ON)
if(MOJO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(MOJO_CCACHE_PROGRAM ccache)
  if(MOJO_CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      ${MOJO_CCACHE_PROGRAM})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      add_compile_options(-fpch-preprocess)
    endif()
  endif()
endif()

# Warnings are of our own code: torch and GoogleTest come in as system headers.
add_library(mojo_compile INTERFACE)
target_compile_options(mojo_compile INTERFACE -Wall -Wextra -Wpedantic)
if(MOJO_WERROR)
  target_compile_options(mojo_compile INTERFACE -Werror)
endif()
if(MOJO_ASSERTIONS)
  # CMake's RelWithDebInfo and Release define NDEBUG. Code that includes torch keeps it (see mojo_compile_torch), since
  # torch's own headers change under it.
  target_compile_options(mojo_compile INTERFACE -UNDEBUG)
  target_compile_definitions(mojo_compile INTERFACE MOJO_ASSERTIONS=1)
endif()
find_package(Threads REQUIRED)
target_link_libraries(mojo_compile INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

if(MOJO_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(MOJO_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  # GCC warns that ThreadSanitizer does not model atomic_thread_fence, which is about the tool, not the code.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)
  endif()
elseif(NOT MOJO_SANITIZE STREQUAL "")
  message(FATAL_ERROR "MOJO_SANITIZE=${MOJO_SANITIZE}: accepted are empty, address, thread")
endif()

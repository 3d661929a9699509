# Finds torch in the Python environment that will import us, and makes target `mojo_torch` of its headers and libraries.
#
# torch's own TorchConfig.cmake is not used: for a CUDA build of torch it demands a CUDA toolkit, and we need none of
# it, only c10 and torch_cpu, which every build has.

if(MOJO_PYTHON)
  set(Python_EXECUTABLE "${MOJO_PYTHON}")
endif()
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.10 COMPONENTS Interpreter Development.Module REQUIRED)

# Where torch is and what it is, read without importing it (an import takes seconds). pip's build isolation hides the
# environment's packages from the build, so the environment's own site-packages are looked at next: that torch is the one
# that will import us.
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_torch.py"
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${error}")
endif()
list(GET output 0 MOJO_TORCH_ROOT)
list(GET output 1 MOJO_TORCH_VERSION)

foreach(part MAJOR MINOR)
  file(STRINGS "${MOJO_TORCH_ROOT}/include/torch/headeronly/version.h" line REGEX "define TORCH_VERSION_${part} ")
  string(REGEX MATCH "[0-9]+$" MOJO_TORCH_${part} "${line}")
endforeach()
if("${MOJO_TORCH_MAJOR}.${MOJO_TORCH_MINOR}" VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${MOJO_TORCH_VERSION} in ${MOJO_TORCH_ROOT} is too old: torch 2.11 or later is needed")
endif()
message(STATUS "torch ${MOJO_TORCH_VERSION} in ${MOJO_TORCH_ROOT}")

add_library(mojo_torch INTERFACE)
target_include_directories(mojo_torch SYSTEM INTERFACE
  "${MOJO_TORCH_ROOT}/include" "${MOJO_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_directories(mojo_torch INTERFACE "${MOJO_TORCH_ROOT}/lib")
# By name, so that the libraries are found by the soname under which `import torch` has already loaded them. Those that
# they need themselves (libgomp under a hashed name, CUDA's) are not looked for.
target_link_libraries(mojo_torch INTERFACE torch_cpu c10)
target_link_options(mojo_torch INTERFACE "LINKER:--allow-shlib-undefined")
# Some toolchains link the standard library as an archive. A copy whose symbols leave the library would be mixed with the
# one that torch has loaded, and a stream of one with a locale of the other ends the process.
target_link_options(mojo_torch INTERFACE "LINKER:--exclude-libs,libstdc++.a:libgcc.a:libgcc_eh.a")
# The version is on the command line so that another torch in the same place compiles everything anew.
target_compile_definitions(mojo_torch INTERFACE "MOJO_TORCH_VERSION=\"${MOJO_TORCH_VERSION}\"")

# Our warnings for code that includes torch. NDEBUG stays, even in a checked build: torch's inline code is not ours to
# check.
add_library(mojo_compile_torch INTERFACE)
target_compile_options(mojo_compile_torch INTERFACE -Wall -Wextra -Wpedantic)
if(MOJO_WERROR)
  target_compile_options(mojo_compile_torch INTERFACE -Werror)
endif()
if(MOJO_ASSERTIONS)
  target_compile_definitions(mojo_compile_torch INTERFACE MOJO_ASSERTIONS=1)
endif()
# Full debug information of torch's templates makes objects ten times as large; lines are enough for a backtrace.
target_compile_options(mojo_compile_torch INTERFACE $<$<CONFIG:RelWithDebInfo>:-g1>)
target_link_libraries(mojo_compile_torch INTERFACE mojo_torch Threads::Threads)

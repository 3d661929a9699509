# libtorch_mojo (the torch glue and the ops) and the Python module `_C`.

file(GLOB_RECURSE glue CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/torch_backend/*.cpp")
file(GLOB_RECURSE ops CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/ops/*.cpp")
file(GLOB module CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/python/*.cpp")
if(NOT glue)
  return()
endif()

mojo_layer_includes(torch_backend glue_includes)
mojo_layer_includes(ops ops_includes)
mojo_layer_includes(python python_includes)

# Headers that nearly every file of the two includes: parsing them is most of the time of a compilation.
set(torch_objects)
add_library(mojo_torch_backend_objects OBJECT ${glue})
target_include_directories(mojo_torch_backend_objects PRIVATE ${glue_includes})
target_link_libraries(mojo_torch_backend_objects PRIVATE mojo_compile_torch)
target_precompile_headers(mojo_torch_backend_objects PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/torch_backend/pch.h")
list(APPEND torch_objects $<TARGET_OBJECTS:mojo_torch_backend_objects>)
if(ops)
  add_library(mojo_ops_objects OBJECT ${ops})
  target_include_directories(mojo_ops_objects PRIVATE ${ops_includes})
  target_link_libraries(mojo_ops_objects PRIVATE mojo_compile_torch)
  target_precompile_headers(mojo_ops_objects REUSE_FROM mojo_torch_backend_objects)
  list(APPEND torch_objects $<TARGET_OBJECTS:mojo_ops_objects>)
endif()

add_library(torch_mojo SHARED ${torch_objects})
set_target_properties(torch_mojo PROPERTIES
  LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY "${package_dir}/lib"
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
target_link_libraries(torch_mojo PRIVATE mojo_compile_torch mojo_runtime)
# Registrations in it live as long as the process.
target_link_options(torch_mojo PRIVATE "LINKER:-z,nodelete")
install(TARGETS torch_mojo LIBRARY DESTINATION torch_mojo_backend/lib COMPONENT python EXCLUDE_FROM_ALL)

if(module)
  Python_add_library(mojo_python MODULE WITH_SOABI ${module})
  set_target_properties(mojo_python PROPERTIES
    OUTPUT_NAME _C
    LIBRARY_OUTPUT_DIRECTORY "${package_dir}"
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")
  target_include_directories(mojo_python PRIVATE ${python_includes})
  target_compile_definitions(mojo_python PRIVATE TORCH_EXTENSION_NAME=_C)
  target_link_libraries(mojo_python PRIVATE mojo_compile_torch torch_mojo mojo_runtime torch_python)
  install(TARGETS mojo_python LIBRARY DESTINATION torch_mojo_backend COMPONENT python EXCLUDE_FROM_ALL)
endif()

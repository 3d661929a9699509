# What is installed for C++ programs: library, headers, and the files with which find_package(mojo) makes mojo::mojo.
#
#   cmake --install BUILD --prefix PREFIX    PREFIX/{lib,include,lib/cmake/mojo}
#   the Python wheel                         the same below torch_mojo_backend/, beside the Python files (component python)

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set_target_properties(mojo_runtime PROPERTIES EXPORT_NAME mojo)
# `lib` and `include` as folders of the prefix, `component` of the installation; the rest is for every install().
function(mojo_install_package lib include component)
  set(export "mojo_${component}")
  set(config "${lib}/cmake/mojo")
  install(TARGETS mojo_runtime EXPORT ${export}
    LIBRARY DESTINATION "${lib}" COMPONENT ${component} ${ARGN}
    INCLUDES DESTINATION "${include}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/mojo" DESTINATION "${include}" COMPONENT ${component} ${ARGN}
    FILES_MATCHING PATTERN "*.h")
  install(EXPORT ${export} FILE mojoConfig.cmake NAMESPACE mojo:: DESTINATION "${config}" COMPONENT ${component} ${ARGN})
  install(FILES "${package_dir}/lib/cmake/mojo/mojoConfigVersion.cmake" DESTINATION "${config}"
    COMPONENT ${component} ${ARGN})
endfunction()

# In the build tree it is beside the library too.
export(TARGETS mojo_runtime NAMESPACE mojo:: FILE "${package_dir}/lib/cmake/mojo/mojoConfig.cmake")
write_basic_package_version_file("${package_dir}/lib/cmake/mojo/mojoConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)

mojo_install_package("${CMAKE_INSTALL_LIBDIR}" "${CMAKE_INSTALL_INCLUDEDIR}" cpp)
mojo_install_package(torch_mojo_backend/lib torch_mojo_backend/include python EXCLUDE_FROM_ALL)

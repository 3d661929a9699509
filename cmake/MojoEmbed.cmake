# mojo_embed(LAYER SOURCE NAME [AS header.h] FILES...): SOURCE, a .cpp of LAYER, may `#include "embedded/NAME.inc"`,
# which holds the files' text.
function(mojo_embed layer source name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "AS;ROOT" "FILES")
  set(output "${PROJECT_BINARY_DIR}/embedded/embedded/${name}.inc")
  list(JOIN arg_FILES "," files)
  add_custom_command(OUTPUT "${output}"
    COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${output}" "-DROOT=${arg_ROOT}" "-DPREFIX=${arg_AS}" "-DFILES=${files}"
      -P "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake"
    DEPENDS ${arg_FILES} "${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake"
    COMMENT "Embedding ${name}" VERBATIM)
  mojo_layer_target("${layer}" target)
  target_include_directories(${target}_objects PRIVATE "${PROJECT_BINARY_DIR}/embedded")
  set_property(SOURCE "${PROJECT_SOURCE_DIR}/src/${source}" APPEND PROPERTY OBJECT_DEPENDS "${output}")
endfunction()

# cmake -DOUTPUT=... -DROOT=... -DPREFIX=... -DFILES=a,b -P EmbedText.cmake
#
# Writes each file as an element of an array of (name, text), to be included between the array's braces. A name is the
# file's path from ROOT, or PREFIX where that is given and there is one file.
string(REPLACE "," ";" FILES "${FILES}")
set(out "")
foreach(file IN LISTS FILES)
  file(READ "${file}" text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${file} holds the end of a raw string literal")
  endif()
  if(PREFIX)
    set(name "${PREFIX}")
  else()
    file(RELATIVE_PATH name "${ROOT}" "${file}")
  endif()
  string(APPEND out "{\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "${out}")

# MLIR and LLVM 22 for quincunx/compiler and qx-opt: Debian's shared libraries, which are not on the loader's path.
find_package(MLIR CONFIG QUIET HINTS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT MLIR_FOUND OR NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "MLIR 22 is missing: apt install libmlir-22-dev llvm-22-dev mlir-22-tools, or name its folder by "
                      "-DMLIR_DIR=, or build without the compiler by -DQX_BUILD_COMPILER=OFF")
endif()
find_program(QX_TBLGEN NAMES mlir-tblgen-22 mlir-tblgen HINTS ${LLVM_TOOLS_BINARY_DIR} REQUIRED)
set(QX_LLVM_LIBRARY_DIR ${LLVM_LIBRARY_DIRS})

# Debian's MLIR has RTTI and no exceptions: none may unwind through its frames, so ours has none either.
add_library(qx_mlir INTERFACE)
target_include_directories(qx_mlir SYSTEM INTERFACE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS}
  ${PROJECT_BINARY_DIR}/generated)
target_compile_options(qx_mlir INTERFACE -fno-exceptions)
target_link_libraries(qx_mlir INTERFACE qx_flags MLIR LLVM)

# qx_tablegen(mfuse_ops.td mfuse_ops.h.inc -gen-op-decls): writes generated/<this folder>/mfuse_ops.h.inc. Headers that a
# .td includes are dependencies through the depfile that mlir-tblgen writes.
function(qx_tablegen source output)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(path ${PROJECT_BINARY_DIR}/generated/${folder}/${output})
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/generated/${folder})
  list(GET MLIR_INCLUDE_DIRS 0 mlir_include)
  add_custom_command(
    OUTPUT ${path}
    COMMAND ${QX_TBLGEN} ${ARGN} -I ${mlir_include} -I ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
            -o ${path} -d ${path}.d --write-if-changed
    COMMAND ${CMAKE_COMMAND} -E touch ${path}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${path}.d
    COMMENT "mlir-tblgen ${output}" VERBATIM)
  set_property(GLOBAL APPEND PROPERTY QX_GENERATED ${path})
endfunction()

# qx_compiler_folder(dialect SOURCES ... DEPENDS ...): a folder below compiler/; quincunx_compiler is made of them. The
# generated headers of the folders above it exist before it compiles.
function(qx_compiler_folder name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  qx_folder(NAME compiler/${name} LIBRARY compiler SOURCES ${arg_SOURCES} DEPENDS ${arg_DEPENDS}
            LIBRARIES qx_mlir ${arg_LIBRARIES})
  get_property(generated GLOBAL PROPERTY QX_GENERATED)
  add_custom_target(qx_generated_${name} DEPENDS ${generated})
  add_dependencies(qx_compiler_${name} qx_generated_${name})
endfunction()

# What `cmake --install` and `pip install` lay down. Both use one layout below their prefix (the Python package's own
# folder is pip's prefix): lib/, include/, lib/cmake/quincunx/; the program goes to bin/, in a wheel to the scripts.
include(CMakePackageConfigHelpers)
find_package(hwy REQUIRED CONFIG)
find_package(ZLIB REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc i18n data)
set(cmake_directory lib/cmake/quincunx)

set_target_properties(quincunx_runtime PROPERTIES EXPORT_NAME runtime INSTALL_RPATH $ORIGIN)
set_target_properties(quincunx_tokenizers PROPERTIES EXPORT_NAME tokenizers INSTALL_RPATH $ORIGIN)
install(TARGETS quincunx_runtime quincunx_tokenizers EXPORT quincunx LIBRARY DESTINATION lib COMPONENT runtime
        INCLUDES DESTINATION include)
# Debian has no static archives of these that a shared library could take in, so the libraries travel with ours and are
# found beside them ($ORIGIN).
install(FILES $<TARGET_FILE:hwy::hwy> DESTINATION lib RENAME $<TARGET_SONAME_FILE_NAME:hwy::hwy> COMPONENT runtime)
foreach(library ${ZLIB_LIBRARIES} ${ICU_LIBRARIES} ${QX_SENTENCEPIECE_LIBRARY})
  get_filename_component(file ${library} REALPATH)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${file} OUTPUT_VARIABLE section COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "SONAME +([^\n ]+)" match "${section}")
  install(FILES ${file} DESTINATION lib RENAME ${CMAKE_MATCH_1} COMPONENT runtime)
endforeach()
foreach(library quincunx_torch quincunx_torch_distributed quincunx_torch_activation quincunx_torch_fusion)
  if(TARGET ${library})
    set_target_properties(${library} PROPERTIES INSTALL_RPATH $ORIGIN)
    install(TARGETS ${library} LIBRARY DESTINATION lib COMPONENT torch)
  endif()
endforeach()
set_target_properties(quincunx_convert PROPERTIES INSTALL_RPATH $ORIGIN)
install(TARGETS quincunx_convert LIBRARY DESTINATION lib COMPONENT torch)
if(TARGET quincunx_core)
  install(TARGETS quincunx_core quincunx_convert_python quincunx_generation_python LIBRARY DESTINATION lib
          COMPONENT torch)
endif()
if(TARGET quincunx_torch_distributed)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/_quincunx_distributed.torch_version
                ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/_quincunx_activation.torch_version DESTINATION lib COMPONENT torch)
endif()

if(TARGET quincunx_compiler)  # finds LLVM by its rpath
  set_target_properties(quincunx_regions PROPERTIES INSTALL_RPATH $ORIGIN)
  install(TARGETS quincunx_compiler quincunx_regions LIBRARY DESTINATION lib COMPONENT compiler)
  if(TARGET quincunx_regions_python)
    install(TARGETS quincunx_regions_python LIBRARY DESTINATION lib COMPONENT compiler)
  endif()
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/ DESTINATION models COMPONENT torch FILES_MATCHING PATTERN "*.toml")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/quincunx DESTINATION include COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN torch EXCLUDE PATTERN apps EXCLUDE PATTERN compiler EXCLUDE)
find_path(QX_DLPACK_DIRECTORY dlpack/dlpack.h REQUIRED)
install(FILES ${QX_DLPACK_DIRECTORY}/dlpack/dlpack.h DESTINATION include/dlpack COMPONENT development)
install(EXPORT quincunx FILE quincunx-targets.cmake NAMESPACE quincunx:: DESTINATION ${cmake_directory}
        COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/quincunx-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/quincunx-config.cmake ${PROJECT_BINARY_DIR}/quincunx-config-version.cmake
        DESTINATION ${cmake_directory} COMPONENT development)

# bin/ beside lib/, and the scripts of a Python environment (Debian's own calls site-packages dist-packages).
set_target_properties(qx PROPERTIES INSTALL_RPATH
  "$ORIGIN/../lib;$ORIGIN/../lib/python3.11/site-packages/quincunx/lib;$ORIGIN/../lib/python3.11/dist-packages/quincunx/lib")
install(TARGETS qx RUNTIME DESTINATION bin COMPONENT apps)
if(SKBUILD)
  install(TARGETS qx RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel EXCLUDE_FROM_ALL)
  # Where find_package looks once the environment is activated; it leads to the package's own configuration.
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/environment/quincunx-config.cmake
                ${PROJECT_BINARY_DIR}/quincunx-config-version.cmake
          DESTINATION ${SKBUILD_DATA_DIR}/${cmake_directory} COMPONENT wheel EXCLUDE_FROM_ALL)
endif()

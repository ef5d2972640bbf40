# find_package(quincunx) in a Python environment: <prefix>/lib/cmake/quincunx leads to <prefix>/lib/python3.*/.../quincunx.
file(GLOB candidates
  ${CMAKE_CURRENT_LIST_DIR}/../../python3*/site-packages/quincunx/lib/cmake/quincunx/quincunx-config.cmake
  ${CMAKE_CURRENT_LIST_DIR}/../../python3*/dist-packages/quincunx/lib/cmake/quincunx/quincunx-config.cmake)
list(LENGTH candidates count)
if(NOT count EQUAL 1)
  set(quincunx_FOUND FALSE)
  set(quincunx_NOT_FOUND_MESSAGE "expected one quincunx Python package in this environment, found: '${candidates}'")
  return()
endif()
include(${candidates})

# Included before project(): clang 22 where it is installed and nobody chose otherwise by CC, CXX or -D.
if(NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX} AND NOT DEFINED ENV{CC})
  find_program(QX_CLANG clang-22)
  find_program(QX_CLANGXX clang++-22)
  if(QX_CLANG AND QX_CLANGXX)
    set(CMAKE_C_COMPILER ${QX_CLANG} CACHE FILEPATH "C compiler")
    set(CMAKE_CXX_COMPILER ${QX_CLANGXX} CACHE FILEPATH "C++ compiler")
  endif()
endif()

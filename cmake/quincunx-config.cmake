# find_package(quincunx) gives quincunx::runtime, the C++ library without Python, PyTorch or LLVM.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/quincunx-targets.cmake)

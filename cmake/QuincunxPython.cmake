# Python and nanobind, for the modules under quincunx/python and quincunx/torch. nanobind comes from the same Python:
# cmake/requirements.txt pins it.
option(QX_BUILD_PYTHON "Build quincunx._core (needs nanobind in the Python that CMake finds)" ${QX_BUILD_TORCH})
if(QX_BUILD_PYTHON)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nanobind is missing from ${Python_EXECUTABLE}: pip install nanobind==3.1.0, or -DQX_BUILD_PYTHON=OFF")
  endif()
  find_package(nanobind REQUIRED CONFIG)
endif()

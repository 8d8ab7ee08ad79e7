# plimsoll._core, for the system's Python: Debian's pybind11-dev and python3-dev. -DPython_EXECUTABLE=... chooses another one.
option(PLIMSOLL_PYTHON "Build the Python module where pybind11 and Python's headers are found" ON)
if(NOT Python_EXECUTABLE AND EXISTS /usr/bin/python3)
  set(Python_EXECUTABLE /usr/bin/python3)
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(Python COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module QUIET)
if(PLIMSOLL_PYTHON AND Python_Development.Module_FOUND)
  find_package(pybind11 CONFIG QUIET)
endif()

if(NOT PLIMSOLL_PYTHON OR PLIMSOLL_SANITIZE OR PLIMSOLL_FUZZ OR PLIMSOLL_COVERAGE)
  set(without "not asked for, or the build is instrumented: a Python that is not cannot load it")
elseif(NOT pybind11_FOUND)
  set(without "pybind11 or Python's headers are missing (pybind11-dev, python3-dev)")
endif()
if(without)
  message(STATUS "Python module: none, ${without}")
  add_custom_target(plimsoll_python COMMAND ${CMAKE_COMMAND} -E echo "no Python module: ${without}")
  return()
endif()
message(STATUS "Python module: for Python ${Python_VERSION}")

set(PLIMSOLL_HAS_PYTHON TRUE)
python_add_library(plimsoll_python MODULE WITH_SOABI experiments/python/core_module.cpp)
plimsoll_options(plimsoll_python)
shareable(plimsoll_python)
target_compile_options(plimsoll_python PRIVATE $<$<CONFIG:Release>:${PLIMSOLL_COLD}>)
target_link_libraries(plimsoll_python PRIVATE pybind11::headers plimsoll_experiments)
# Beside the package's own files, as they are installed: PYTHONPATH=build/python.
set_target_properties(plimsoll_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/plimsoll
                      BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
                      INSTALL_RPATH "$ORIGIN/../..;$ORIGIN/../../../plimsoll")  # late libraries: build folder, lib/plimsoll
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/python/plimsoll)
file(GLOB package_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/traces/python/plimsoll traces/python/plimsoll/*)
list(REMOVE_ITEM package_files __pycache__)
foreach(file ${package_files})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/traces/python/plimsoll/${file} ${CMAKE_BINARY_DIR}/python/plimsoll/${file} SYMBOLIC)
endforeach()

# SimGrid's Debian package ships no CMake configuration: find the header and the library.
find_path(SimGrid_INCLUDE_DIR simgrid/s4u.hpp HINTS $ENV{SIMGRID_PATH}/include /opt/simgrid/include)
find_library(SimGrid_LIBRARY simgrid HINTS $ENV{SIMGRID_PATH}/lib /opt/simgrid/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SimGrid REQUIRED_VARS SimGrid_LIBRARY SimGrid_INCLUDE_DIR)
if(SimGrid_FOUND AND NOT TARGET SimGrid::SimGrid)
  add_library(SimGrid::SimGrid UNKNOWN IMPORTED)
  set_target_properties(SimGrid::SimGrid PROPERTIES IMPORTED_LOCATION ${SimGrid_LIBRARY}
                                                    INTERFACE_INCLUDE_DIRECTORIES ${SimGrid_INCLUDE_DIR}
                                                    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${SimGrid_INCLUDE_DIR})
endif()

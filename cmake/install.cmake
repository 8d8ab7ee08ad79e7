# cmake --install build --prefix DIR: the program, what it loads late, manual page and completion, and in share/plimsoll
# the shipped files, which it finds from its own place (sim/io/shipped.h).
set(shipped share/plimsoll)
# One run path for both places: in the build folder the libraries lie beside the program.
set_target_properties(plimsoll PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib/plimsoll")
set(late_libraries plimsoll_late_simgrid plimsoll_late_coin plimsoll_late_metis plimsoll_late_scotch)
if(TARGET plimsoll_late_mpi)
  list(APPEND late_libraries plimsoll_late_mpi)
endif()
set_target_properties(plimsoll ${late_libraries}
                      PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS plimsoll RUNTIME DESTINATION bin)
install(TARGETS ${late_libraries} LIBRARY DESTINATION lib/plimsoll)

install(DIRECTORY platforms DESTINATION ${shipped} FILES_MATCHING PATTERN "*.yaml")
install(DIRECTORY docs/schemas DESTINATION ${shipped}/docs)  # as the files name them
install(DIRECTORY traces/data DESTINATION ${shipped}/traces)
install(DIRECTORY experiments DESTINATION ${shipped} FILES_MATCHING
        PATTERN "*.yaml" PATTERN "*.py" PATTERN "*.json" PATTERN "*.gz" PATTERN "*.html" PATTERN "*.css" PATTERN "*.js")
install(PROGRAMS traces/export_pytorch.py traces/measure_training.py DESTINATION ${shipped}/traces)
install(DIRECTORY traces/python/plimsoll DESTINATION ${shipped}/traces/python
        FILES_MATCHING PATTERN "*.py" PATTERN "*.c" PATTERN "__pycache__" EXCLUDE)
install(FILES traces/plimsoll DESTINATION ${shipped}/traces)  # a link: Python looks beside a script first
file(GLOB validations ${CMAKE_SOURCE_DIR}/validate/*.yaml)
install(FILES ${validations} DESTINATION ${shipped}/validate)

# The Python package, where `python3 -c "import plimsoll"` looks: dist-packages for the prefixes of Debian's own Python, else
# site-packages, as a virtual environment has it. A module that was not built is left out; its Python says so.
if(Python_EXECUTABLE)
  set(PLIMSOLL_PYTHON_DIR "" CACHE STRING "Folder under the prefix for the Python package (empty: as said in cmake/install.cmake)")
  set(site python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
  install(CODE "
    set(packages \"${PLIMSOLL_PYTHON_DIR}\")
    if(NOT packages AND EXISTS /etc/debian_version AND CMAKE_INSTALL_PREFIX MATCHES \"^/usr/*$|/_CPack_Packages/.*/usr$\")
      set(packages lib/python3/dist-packages)
    elseif(NOT packages AND EXISTS /etc/debian_version AND CMAKE_INSTALL_PREFIX MATCHES \"^/usr/local/*$\")
      set(packages lib/${site}/dist-packages)
    elseif(NOT packages)
      set(packages lib/${site}/site-packages)
    endif()
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${packages}\" TYPE DIRECTORY FILES \"${CMAKE_SOURCE_DIR}/traces/python/plimsoll\"
         FILES_MATCHING PATTERN \"*.py\" PATTERN \"*.pyi\" PATTERN \"py.typed\" PATTERN \"*.c\" PATTERN \"__pycache__\" EXCLUDE)
    file(GLOB module \"${CMAKE_BINARY_DIR}/python/plimsoll/_core.*.so\")
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/\${packages}/plimsoll\" TYPE MODULE FILES \${module})
    if(module AND CMAKE_INSTALL_DO_STRIP)
      get_filename_component(name \"\${module}\" NAME)
      execute_process(COMMAND \"${CMAKE_STRIP}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\${packages}/plimsoll/\${name}\")
    endif()
  ")
endif()

# find_package(plimsoll): the core and the event engine, which need no other library (docs/how_to/library.md).
set_target_properties(plimsoll_core PROPERTIES EXPORT_NAME core)
set_target_properties(plimsoll_event PROPERTIES EXPORT_NAME event)
target_compile_features(plimsoll_core INTERFACE cxx_std_20)
install(TARGETS plimsoll_core plimsoll_event EXPORT plimsoll ARCHIVE DESTINATION lib/plimsoll)
foreach(folder core ops mesh codec model lower judge measure bound engine)
  install(DIRECTORY sim/${folder} DESTINATION include/plimsoll/sim FILES_MATCHING PATTERN "*.h" PATTERN "simgrid" EXCLUDE)
endforeach()
install(EXPORT plimsoll NAMESPACE plimsoll:: FILE plimsollConfig.cmake DESTINATION lib/cmake/plimsoll)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/plimsollConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/plimsollConfigVersion.cmake DESTINATION lib/cmake/plimsoll)

# The program itself writes them.
install(CODE "
  foreach(page man \"completion bash\" \"completion zsh\" \"completion fish\")
    separate_arguments(words UNIX_COMMAND \"\${page}\")
    string(REPLACE \" \" \"_\" file \"\${page}\")
    execute_process(COMMAND \"$<TARGET_FILE:plimsoll>\" \${words} OUTPUT_FILE \"${CMAKE_BINARY_DIR}/installed_\${file}\"
                    RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR \"plimsoll \${page} failed\")
    endif()
  endforeach()
")
install(FILES ${CMAKE_BINARY_DIR}/installed_man DESTINATION share/man/man1 RENAME plimsoll.1)
install(FILES ${CMAKE_BINARY_DIR}/installed_completion_bash DESTINATION share/bash-completion/completions RENAME plimsoll)
install(FILES ${CMAKE_BINARY_DIR}/installed_completion_fish DESTINATION share/fish/vendor_completions.d RENAME plimsoll.fish)
install(FILES ${CMAKE_BINARY_DIR}/installed_completion_zsh DESTINATION share/plimsoll RENAME completion.zsh)

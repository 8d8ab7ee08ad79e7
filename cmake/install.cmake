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

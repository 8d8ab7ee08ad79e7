# Helpers of the build: options, warnings, and one library per folder.

option(PLIMSOLL_TESTS "Build the tests" ON)
option(PLIMSOLL_BENCH "Build the benchmarks" ON)
option(PLIMSOLL_FUZZ "Build the fuzzers (clang only)" OFF)
option(PLIMSOLL_SANITIZE "Address and undefined-behaviour sanitizers" OFF)
option(PLIMSOLL_UNITY "Compile several files at once where headers take longest" ON)
set(PLIMSOLL_GROUPS 1 CACHE STRING "How many times larger groups of files are: more for who compiles all, 1 for who changes a file")
set(PLIMSOLL_LIBRARY_GROUPS 1 CACHE STRING "The same of libraries")
set(PLIMSOLL_CHECKED "" CACHE STRING "Libraries that are compiled once more, with sanitizers, for their own tests")
option(PLIMSOLL_PRECOMPILED "Precompile what most tests include: faster where nothing is in ccache" OFF)
set(PLIMSOLL_COLD "-O1" CACHE STRING "How options and reports are optimized: CLI11 and nlohmann-json take long to compile, not to run")
option(PLIMSOLL_COVERAGE "Instrument for gcov" OFF)
option(PLIMSOLL_WERROR "Warnings are errors: for developers and CI, since each new compiler has new ones" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# GCC's collections of garbage take a fifth of its time; a group of files takes 3 GB without them, and 2.4 GB with.
cmake_host_system_information(RESULT machine_megabytes QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT machine_cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR megabytes_a_core "${machine_megabytes} / ${machine_cores}")
set(PLIMSOLL_COLLECTIONS)
if(megabytes_a_core GREATER 4000)
  set(PLIMSOLL_COLLECTIONS --param=ggc-min-heapsize=4000000)
endif()

# sanitized(target PUBLIC|PRIVATE option...): compiled with sanitizers and these options, PUBLIC: with all that links it.
function(sanitized target visible)
  target_compile_options(${target} ${visible} -fsanitize=address,undefined -fno-sanitize-recover=all -g1 ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Instrumented code hides from GCC that an empty optional's value is never read; plain builds keep the warning.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
  # What a sanitizer's dlopen() looks for is found by the program's old kind of run path only.
  target_link_options(${target} PUBLIC -fsanitize=address,undefined -Wl,--disable-new-dtags)
endfunction()

function(plimsoll_options target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include/plimsoll>)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${PLIMSOLL_WERROR}>:-Werror>
                         -Wno-missing-field-initializers  # designated initializers leave defaults out
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # GCC's -Wconversion has not it either
                         # libstdc++ 12's stable_sort calls what it has deprecated itself.
                         $<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,16>>:-Wno-deprecated-declarations>
                         $<$<CXX_COMPILER_ID:GNU>:-finline-small-functions>  # which -O1 of Clang does by itself
                         $<$<CXX_COMPILER_ID:GNU>:${PLIMSOLL_COLLECTIONS}>
                         -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # GCC bug 105651: false alarms on std::string operator+
  endif()
  target_compile_definitions(${target} PRIVATE PLIMSOLL_VERSION="${PROJECT_VERSION}")
  if(PLIMSOLL_SANITIZE)
    sanitized(${target} PUBLIC)
  endif()
  if(PLIMSOLL_COVERAGE)
    target_compile_options(${target} PUBLIC --coverage)
    target_link_options(${target} PUBLIC --coverage)
  endif()
  if(PLIMSOLL_FUZZ)
    target_compile_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# shareable(target): it can be linked into a shared object, such as the Python module. Names that nobody outside sees are called
# and inlined as in a program.
function(shareable target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# compile_together(target files): compiles the target's files in groups, since reading headers is half of compiling. The files'
# anonymous namespaces become one: their names differ, within a library in all files, within a test program in groups.
function(compile_together target files)
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(kind ${target} TYPE)
  if(kind STREQUAL EXECUTABLE)
    math(EXPR files "${PLIMSOLL_GROUPS} * ${files}")
  else()
    math(EXPR files "${PLIMSOLL_LIBRARY_GROUPS} * ${files}")
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PLIMSOLL_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
  if(PLIMSOLL_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # False alarms: GCC takes what is in a group for headers, and names of its other files for those around a function.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-shadow -Wshadow=local)
  elseif(PLIMSOLL_UNITY)
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()

# plimsoll_library(name [RECURSE] folder... LINKS public... PRIVATE private... LATE file... GROUP files): library plimsoll_<name>
# from the sources in the folders, RECURSE: and below them, but for the files that are late libraries, compiled by so many
# files at once.
function(plimsoll_library name)
  cmake_parse_arguments(LIB "RECURSE" "GROUP" "LINKS;PRIVATE;LATE" ${ARGN})
  if(NOT LIB_GROUP)
    set(LIB_GROUP 4)
  endif()
  set(sources)
  set(glob GLOB)
  if(LIB_RECURSE)
    set(glob GLOB_RECURSE)
  endif()
  foreach(folder ${LIB_UNPARSED_ARGUMENTS})
    file(${glob} found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.cpp)
    list(FILTER found EXCLUDE REGEX "/main\\.cpp$")
    list(APPEND sources ${found})
  endforeach()
  foreach(late ${LIB_LATE})
    list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/${late})
  endforeach()
  if(NOT sources)
    message(WARNING "no sources for ${name} in ${LIB_UNPARSED_ARGUMENTS}")
    return()
  endif()
  add_library(plimsoll_${name} STATIC ${sources})
  plimsoll_options(plimsoll_${name})
  shareable(plimsoll_${name})
  compile_together(plimsoll_${name} ${LIB_GROUP})
  foreach(link ${LIB_LINKS})
    if(TARGET plimsoll_${link})
      target_link_libraries(plimsoll_${name} PUBLIC plimsoll_${link})
    elseif(TARGET ${link})
      target_link_libraries(plimsoll_${name} PUBLIC ${link})
    endif()
  endforeach()
  target_link_libraries(plimsoll_${name} PRIVATE ${LIB_PRIVATE})
  if(name IN_LIST PLIMSOLL_CHECKED)
    checked_library(${name} "${sources}" ${LIB_GROUP} "${LIB_LINKS}" "${LIB_PRIVATE}")
  endif()
endfunction()

# plimsoll_<name>_checked: the library once more, with assertions and with sanitizers but for their checks of every pointer's
# value, which take half of the compiler's time.
function(checked_library name sources group links private)
  set(checked plimsoll_${name}_checked)
  add_library(${checked} STATIC EXCLUDE_FROM_ALL ${sources})
  plimsoll_options(${checked})
  compile_together(${checked} ${group})
  sanitized(${checked} PRIVATE -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow -Og -UNDEBUG)
  list(TRANSFORM links REPLACE "^(.+)$" "plimsoll_\\1_checked")
  target_link_libraries(${checked} PUBLIC ${links} PRIVATE ${private})
endfunction()

# plimsoll_late_library(name sources library... FOR user): libplimsoll_<name>.so in the build folder from the sources, a file or a
# pattern, which the user's library loads when it first needs it (sim/engine/late_library.h).
set(CMAKE_BUILD_RPATH "$ORIGIN;$ORIGIN/..;$ORIGIN/../..")  # from the program, the tests and the benchmarks
function(plimsoll_late_library name sources)
  cmake_parse_arguments(LATE "" "FOR" "" ${ARGN})
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${sources})
  add_library(plimsoll_late_${name} MODULE ${found} ${CMAKE_SOURCE_DIR}/sim/core/expects.cpp)
  plimsoll_options(plimsoll_late_${name})
  set_target_properties(plimsoll_late_${name} PROPERTIES OUTPUT_NAME plimsoll_${name}
                                                         LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_link_libraries(plimsoll_late_${name} PRIVATE ${LATE_UNPARSED_ARGUMENTS})
  add_dependencies(plimsoll_${LATE_FOR} plimsoll_late_${name})
endfunction()

# Test cases are long and run once: optimizing them takes longer than it saves.
function(long_and_run_once target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
endfunction()

# plimsoll_test(name folder LINKS libraries...): Catch2 program test_<name> from the folder's *_test.cpp files, and its other
# files, oracles that are to be fast. CHECKED: with the checked libraries, where they are built.
function(plimsoll_test name folder)
  cmake_parse_arguments(TEST "CHECKED" "" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  list(SORT sources COMPARE FILE_BASENAME)  # compiled in groups whose names differ, wherever they lie
  if(NOT sources)
    return()
  endif()
  set(oracles ${sources})
  list(FILTER sources INCLUDE REGEX "_test\\.cpp$")
  list(FILTER oracles EXCLUDE REGEX "_test\\.cpp$")
  add_executable(test_${name} ${sources})
  plimsoll_options(test_${name})
  long_and_run_once(test_${name})
  if(oracles)
    add_library(oracles_${name} OBJECT ${oracles})
    plimsoll_options(oracles_${name})
    compile_together(oracles_${name} 4)
    target_link_libraries(oracles_${name} PRIVATE $<TARGET_PROPERTY:test_${name},LINK_LIBRARIES>)
    target_compile_definitions(oracles_${name} PRIVATE $<TARGET_PROPERTY:test_${name},COMPILE_DEFINITIONS>)
    target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:oracles_${name}>)
  endif()
  if(TARGET test_headers AND "generate" IN_LIST TEST_LINKS)
    target_precompile_headers(test_${name} REUSE_FROM test_headers)
  endif()
  target_link_libraries(test_${name} PRIVATE test_main)
  set(test ${name})
  if(TEST_CHECKED AND PLIMSOLL_CHECKED)
    set(test sanitized_${name})
  endif()
  foreach(link ${TEST_LINKS})
    if(test STREQUAL "sanitized_${name}" AND TARGET plimsoll_${link}_checked)
      target_link_libraries(test_${name} PRIVATE plimsoll_${link}_checked)
    elseif(test STREQUAL "sanitized_${name}" AND TARGET plimsoll_${link})  # without the libraries that it links, which are not checked
      target_link_libraries(test_${name} PRIVATE $<TARGET_FILE:plimsoll_${link}>)
      add_dependencies(test_${name} plimsoll_${link})
    elseif(TARGET plimsoll_${link})
      target_link_libraries(test_${name} PRIVATE plimsoll_${link})
    else()
      target_link_libraries(test_${name} PRIVATE ${link})
    endif()
  endforeach()
  add_test(NAME ${test} COMMAND test_${name} --min-duration 0.5 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

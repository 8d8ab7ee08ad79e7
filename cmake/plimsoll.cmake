# Helpers of the build: options, warnings, and one library per folder.

option(PLIMSOLL_TESTS "Build the tests" ON)
option(PLIMSOLL_BENCH "Build the benchmarks" ON)
option(PLIMSOLL_FUZZ "Build the fuzzers (clang only)" OFF)
option(PLIMSOLL_SANITIZE "Address and undefined-behaviour sanitizers" OFF)
option(PLIMSOLL_SANITIZE_LESS "Of those, without the checks of every pointer's value: a third less to compile" OFF)
option(PLIMSOLL_UNITY "Compile several files at once where headers take longest" ON)
set(PLIMSOLL_GROUPS 1 CACHE STRING "How many times larger groups of files are: more for who compiles all, 1 for who changes a file")
set(PLIMSOLL_LIBRARY_GROUPS 1 CACHE STRING "The same of libraries")
set(PLIMSOLL_TESTS_APART "" CACHE STRING "Test programs that are not built here, since another build folder runs them")
option(PLIMSOLL_PRECOMPILED "Precompile what most tests include: faster where nothing is in ccache" OFF)
option(PLIMSOLL_COVERAGE "Instrument for gcov" OFF)
option(PLIMSOLL_WERROR "Warnings are errors: for developers and CI, since each new compiler has new ones" OFF)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

function(plimsoll_options target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow $<$<BOOL:${PLIMSOLL_WERROR}>:-Werror>
                         -Wno-missing-field-initializers  # designated initializers leave defaults out
                         $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>  # GCC's -Wconversion has not it either
                         # libstdc++ 12's stable_sort calls what it has deprecated itself.
                         $<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,16>>:-Wno-deprecated-declarations>
                         $<$<CXX_COMPILER_ID:GNU>:-finline-small-functions>  # which -O1 of Clang does by itself
                         -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # GCC bug 105651: false alarms on std::string operator+
  endif()
  target_compile_definitions(${target} PRIVATE PLIMSOLL_VERSION="${PROJECT_VERSION}")
  if(PLIMSOLL_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=address,undefined -fno-sanitize-recover=all -g1)
    if(PLIMSOLL_SANITIZE_LESS)
      target_compile_options(${target} PUBLIC -fno-sanitize=null,alignment,object-size,vptr,pointer-overflow)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # Instrumented code hides from GCC that an empty optional's value is never read; plain builds keep the warning.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    # What a sanitizer's dlopen() looks for is found by the program's old kind of run path only.
    target_link_options(${target} PUBLIC -fsanitize=address,undefined -Wl,--disable-new-dtags)
  endif()
  if(PLIMSOLL_COVERAGE)
    target_compile_options(${target} PUBLIC --coverage)
    target_link_options(${target} PUBLIC --coverage)
  endif()
  if(PLIMSOLL_FUZZ)
    target_compile_options(${target} PUBLIC -fsanitize=fuzzer-no-link)
  endif()
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
  compile_together(plimsoll_${name} ${LIB_GROUP})
  foreach(link ${LIB_LINKS})
    if(TARGET plimsoll_${link})
      target_link_libraries(plimsoll_${name} PUBLIC plimsoll_${link})
    elseif(TARGET ${link})
      target_link_libraries(plimsoll_${name} PUBLIC ${link})
    endif()
  endforeach()
  target_link_libraries(plimsoll_${name} PRIVATE ${LIB_PRIVATE})
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

# Test cases are long and run once: optimizing them takes longer than it saves. Oracles are other files, and fast.
function(long_and_run_once target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  get_target_property(oracles ${target} SOURCES)
  list(FILTER oracles EXCLUDE REGEX "_test\\.cpp$")
  set_source_files_properties(${oracles} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>"
                                                    SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# plimsoll_test(name folder LINKS libraries...): Catch2 program test_<name> from the folder's *_test.cpp files.
function(plimsoll_test name folder)
  cmake_parse_arguments(TEST "" "" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  list(SORT sources COMPARE FILE_BASENAME)  # compiled in groups whose names differ, wherever they lie
  if(NOT sources OR name IN_LIST PLIMSOLL_TESTS_APART)
    return()
  endif()
  add_executable(test_${name} ${sources})
  plimsoll_options(test_${name})
  long_and_run_once(test_${name})
  if(TARGET test_headers AND "generate" IN_LIST TEST_LINKS)
    target_precompile_headers(test_${name} REUSE_FROM test_headers)
  endif()
  target_link_libraries(test_${name} PRIVATE test_main)
  foreach(link ${TEST_LINKS})
    if(TARGET plimsoll_${link})
      target_link_libraries(test_${name} PRIVATE plimsoll_${link})
    else()
      target_link_libraries(test_${name} PRIVATE ${link})
    endif()
  endforeach()
  add_test(NAME ${name} COMMAND test_${name} --min-duration 0.5 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

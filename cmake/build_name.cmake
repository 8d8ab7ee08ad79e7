# Run by every build: writes OUTPUT, a source with the name of the commit in SOURCE, and touches it only where the name is
# another one, so that nothing else is compiled again. Changes are those of what the program is made of: not of tests.
set(built -- "*.cpp" "*.h" "*.def" "*.cu" "*.cuh" "*.cmake" CMakeLists.txt CMakePresets.json ":(exclude)tests")

function(git result)
  execute_process(COMMAND git -C ${SOURCE} ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE failed ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} "${text}" PARENT_SCOPE)
  set(failed "${failed}" PARENT_SCOPE)
endfunction()

git(tracked ls-files --error-unmatch CMakeLists.txt)  # not in the history of something else
if(NOT failed)
  git(name rev-parse --short=12 HEAD)
endif()
if(failed)
  set(name unknown)
else()
  git(changes diff HEAD ${built})
  git(new_files ls-files --others --exclude-standard ${built})
  string(REPLACE "\n" ";" new_files "${new_files}")
  foreach(file ${new_files})
    file(SHA1 ${SOURCE}/${file} digest)
    string(APPEND changes "${file} ${digest}\n")
  endforeach()
  if(changes)
    string(SHA1 digest "${changes}")
    string(SUBSTRING ${digest} 0 8 digest)
    string(APPEND name "-dirty-${digest}")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "experiments/study/build_name.h"

std::string_view plimsoll::build_name() {
  return "@name@";
}
]] @ONLY)

# The CUDA backend is built where nvcc, cuBLASLt and cuDNN are found; everything else builds without it.
option(PLIMSOLL_CUDA "Build the CUDA backend where nvcc, cuBLASLt and cuDNN are found" ON)

# nvcc does not know the instrumenting options of sanitizers, fuzzers and coverage.
if(PLIMSOLL_CUDA AND NOT PLIMSOLL_SANITIZE AND NOT PLIMSOLL_FUZZ AND NOT PLIMSOLL_COVERAGE)
  find_program(PLIMSOLL_NVCC nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin /opt/cuda/bin)
  if(PLIMSOLL_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(ENV{CUDACXX} ${PLIMSOLL_NVCC})
    include(CheckLanguage)
    check_language(CUDA)  # an nvcc that does not get on with the host's compiler is as good as none
  endif()
  if(CMAKE_CUDA_COMPILER)
    # Hopper; what is newer, and Turing, Ampere and Ada, compile the intermediate code at first use. Each further one would
    # cost every build 12 s.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90)
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 does C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    find_package(CUDAToolkit QUIET)
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(CUBLASLT_LIBRARY cublasLt HINTS ${CUDAToolkit_LIBRARY_DIR})
    find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
    # Of ranks on several GPUs only: without its header such schedules are refused.
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  endif()
  if(CMAKE_CUDA_COMPILER AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CUDAToolkit_FOUND
     AND CUBLASLT_LIBRARY AND CUDNN_LIBRARY AND CUDNN_INCLUDE_DIR)
    set(PLIMSOLL_HAS_CUDA TRUE)
  endif()
endif()
if(PLIMSOLL_HAS_CUDA)
  if(NCCL_INCLUDE_DIR)
    set(PLIMSOLL_HAS_NCCL TRUE)
    if(NOT NCCL_LIBRARY)
      set(NCCL_LIBRARY "")
    endif()
    set(nccl_found "NCCL of ${NCCL_INCLUDE_DIR}")
  else()
    set(nccl_found "no NCCL")
  endif()
  message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, ${CUBLASLT_LIBRARY}, ${CUDNN_LIBRARY}, ${nccl_found}")
else()
  message(STATUS "CUDA backend: none")
endif()

if(PLIMSOLL_HAS_CUDA)
  # Kernels: .cu files know no more of the project than its formulas and sizes.
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/validate/cuda/*.cu)
  add_library(plimsoll_cuda_kernels STATIC ${kernels})
  set_target_properties(plimsoll_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(plimsoll_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR})
  # No -Wpedantic: nvcc's own output is not. No contraction, as on the CPU: updates there and here give the same bits.
  target_compile_options(plimsoll_cuda_kernels PRIVATE --extended-lambda --fmad=false
                         -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Wno-missing-field-initializers
                         "$<$<BOOL:${PLIMSOLL_WERROR}>:--Werror=all-warnings;-Xcompiler=-Werror>")
  target_link_libraries(plimsoll_cuda_kernels PUBLIC CUDA::cudart_static)

  set(cuda_folders validate/cuda validate/cuda/memory)
  set(issuing attention_kernels convolution_kernels cuda_error cuda_kernel cuda_machine cuda_network cuda_rates cuda_replay
      decoder_kernels expert_kernels library_places matrix_product memory/run_rooms narrow_kernels own_kernels product_kernels)
  set(cuda_headers ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  if(PLIMSOLL_HAS_NCCL)
    list(APPEND cuda_folders validate/cuda/ranks)
    list(APPEND issuing ranks/communicators ranks/cuda_ranks ranks/group_exchange ranks/nccl_exchange ranks/nccl_rates)
    list(APPEND cuda_headers ${NCCL_INCLUDE_DIR})
  endif()
  plimsoll_library(validate_cuda ${cuda_folders} LINKS validate core
                   PRIVATE fmt::fmt plimsoll_cuda_kernels CUDA::cudart_static ${CMAKE_DL_LIBS})
  # Loaded when a GPU is first used (validate/cuda/load_libraries.h), so not linked.
  target_compile_definitions(plimsoll_validate_cuda PRIVATE PLIMSOLL_CUBLASLT="${CUBLASLT_LIBRARY}"
                                                            PLIMSOLL_CUDNN="${CUDNN_LIBRARY}")
  if(PLIMSOLL_HAS_NCCL)
    target_compile_definitions(plimsoll_validate_cuda PRIVATE PLIMSOLL_NCCL="${NCCL_LIBRARY}")
  endif()
  target_include_directories(plimsoll_validate_cuda SYSTEM PRIVATE ${cuda_headers})

  # What issues kernels and copies is compiled once: its tests link it with a made-up runtime and made-up libraries.
  list(TRANSFORM issuing REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/validate/cuda/\\1.cpp")
  add_library(plimsoll_cuda_issuing OBJECT ${issuing})
  plimsoll_options(plimsoll_cuda_issuing)
  shareable(plimsoll_cuda_issuing)
  compile_together(plimsoll_cuda_issuing 4)
  target_include_directories(plimsoll_cuda_issuing SYSTEM PRIVATE ${cuda_headers})
  target_link_libraries(plimsoll_cuda_issuing PRIVATE plimsoll_validate fmt::fmt)
  get_target_property(others plimsoll_validate_cuda SOURCES)
  list(REMOVE_ITEM others ${issuing})
  set_property(TARGET plimsoll_validate_cuda PROPERTY SOURCES ${others} $<TARGET_OBJECTS:plimsoll_cuda_issuing>)
endif()

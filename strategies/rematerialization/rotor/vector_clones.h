#pragma once
// PLIMSOLL_VECTOR_CLONES before a function: clones for wider vectors, chosen when the program starts. Products are
// never contracted into sums here, so all clones give the same bits.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define PLIMSOLL_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLIMSOLL_VECTOR_CLONES
#endif

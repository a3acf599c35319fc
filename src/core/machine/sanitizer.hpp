// Which sanitizer this build has, and whether valgrind can be told of stacks.
//
// VIGIL_ASAN and VIGIL_TSAN are 0 or 1. Both compilers are asked in their own
// way. The VALGRIND_ macros cost a few instructions and do nothing outside
// valgrind.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define VIGIL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VIGIL_ASAN 1
#endif
#endif
#ifndef VIGIL_ASAN
#define VIGIL_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define VIGIL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VIGIL_TSAN 1
#endif
#endif
#ifndef VIGIL_TSAN
#define VIGIL_TSAN 0
#endif

#if VIGIL_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if VIGIL_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define VIGIL_VALGRIND 1
#else
#define VIGIL_VALGRIND 0
#define RUNNING_ON_VALGRIND 0
#endif

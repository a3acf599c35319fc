// Clang's thread-safety analysis, under names of our own.
#pragma once

#if defined(__clang__)
#define VIGIL_ANNOTATION(x) __attribute__((x))
#else
#define VIGIL_ANNOTATION(x)
#endif

#define VIGIL_CAPABILITY(name) VIGIL_ANNOTATION(capability(name))
#define VIGIL_SCOPED_CAPABILITY VIGIL_ANNOTATION(scoped_lockable)
#define VIGIL_GUARDED_BY(lock) VIGIL_ANNOTATION(guarded_by(lock))
#define VIGIL_REQUIRES(...) VIGIL_ANNOTATION(requires_capability(__VA_ARGS__))
#define VIGIL_EXCLUDES(...) VIGIL_ANNOTATION(locks_excluded(__VA_ARGS__))
#define VIGIL_ACQUIRE(...) VIGIL_ANNOTATION(acquire_capability(__VA_ARGS__))
#define VIGIL_TRY_ACQUIRE(...) VIGIL_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define VIGIL_RELEASE(...) VIGIL_ANNOTATION(release_capability(__VA_ARGS__))
#define VIGIL_NO_THREAD_SAFETY_ANALYSIS VIGIL_ANNOTATION(no_thread_safety_analysis)

// For the dump, whose reads race on purpose.
#if defined(__clang__)
#define VIGIL_NO_SANITIZE_THREAD __attribute__((no_sanitize("thread"), noinline))
#else
#define VIGIL_NO_SANITIZE_THREAD __attribute__((no_sanitize_thread, noinline))
#endif

// For what reads a copy of bytes that may be no object any more: the sanitizer looks at
// the pointer to its virtual functions.
#define VIGIL_NO_SANITIZE_UNDEFINED __attribute__((no_sanitize("undefined"), noinline))

// For what reads the stacks of others, and the gaps between their variables.
#define VIGIL_NO_SANITIZE __attribute__((no_sanitize_thread, no_sanitize_address, noinline))

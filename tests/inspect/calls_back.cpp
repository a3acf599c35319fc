// A module that sigquit_program and names_program load. CALL_BACK: another name for its
// function.
#ifndef CALL_BACK
#define CALL_BACK call_back
#endif

extern "C" [[gnu::visibility("default")]] void CALL_BACK(void (*f)(void*), void* argument) {
  f(argument);
  asm volatile("" ::: "memory");  // no tail call
}

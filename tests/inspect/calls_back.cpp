// A module that sigquit_program loads by a relative path.
extern "C" [[gnu::visibility("default")]] void call_back(void (*f)(void*), void* argument) {
  f(argument);
  asm volatile("" ::: "memory");  // no tail call
}

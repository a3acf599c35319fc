// A module that sigquit_program, names_program and closed_files_test load. CALL_BACK:
// another name for its function.
#ifndef CALL_BACK
#define CALL_BACK call_back
#endif

extern "C" [[gnu::visibility("default")]] void CALL_BACK(void (*f)(void*), void* argument) {
  f(argument);
  asm volatile("" ::: "memory");  // no tail call
}

extern "C" [[gnu::visibility("default")]] const char* file_of_module() {
  return __FILE__;
}

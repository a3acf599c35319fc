// The system's own function behind one that the explorer replaces.
#pragma once

#include <dlfcn.h>

namespace model {

template <class F>
F* original_of(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace model

// Compiled once for all examples of a folder.
#include <vigil/vigil.hpp>

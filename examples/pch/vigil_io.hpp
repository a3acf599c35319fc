// Compiled once for all examples of vigil-io.
#include <vigil/io.hpp>

// Compiled once for each test executable, ahead of its files: the headers that nearly
// every test includes. A test still includes what it uses, for its readers.
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <doctest/doctest.h>

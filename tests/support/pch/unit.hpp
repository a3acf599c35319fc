// Compiled once for each test executable, ahead of its files: what nearly every
// test includes. A test still includes what it uses, for those who read it.
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <doctest/doctest.h>

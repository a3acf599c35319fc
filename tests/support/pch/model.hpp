// As unit.hpp, for the model tests. Nothing of vigil: a planted fault puts its
// header before the real one.
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

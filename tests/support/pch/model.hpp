// Like unit.hpp, for the model tests. It includes no header of vigil: a planted fault
// puts its header before the real one.
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

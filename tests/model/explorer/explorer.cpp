// The explorer as one unit: its parts call each other at each access to memory, and
// inlining halves their time.
#include "explorer/engine.cpp"
#include "explorer/hooks.cpp"
#include "explorer/memory.cpp"
#include "explorer/program.cpp"
#include "explorer/records.cpp"
#include "explorer/reduction.cpp"
#include "explorer/search.cpp"
#include "explorer/stacks.cpp"
#include "explorer/system.cpp"
#include "explorer/text.cpp"
#include "explorer/world.cpp"

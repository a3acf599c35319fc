// Counts the touches of cache lines; see count.cpp.
#pragma once

#include <cstddef>

namespace scaling {

// Each thread gives up its processor after so many atomic modifications and stores, on
// average, so that more threads than processors interleave finely; 0: never. Set before
// there are workers, as is the next.
extern unsigned yield_after;

// Says whether the calling thread is on the timer fiber, on which all firing is serial.
// Called at each transfer; its own accesses do not count.
extern bool (*on_timer_fiber)();

void begin();  // from here on touches count
void end();
void print(std::size_t operations);

}  // namespace scaling

// Like unit.hpp, for the library's sources under the explorer and the faulty ones beside
// them. It includes no header of vigil: a planted fault puts its header before the real
// one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

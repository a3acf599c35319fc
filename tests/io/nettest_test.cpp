// nettest over TCP, Unix sockets and the pipe in memory, which also runs on virtual time.
#include "io/nettest.hpp"

namespace vigil::io_testing {

TEST_SUITE_BEGIN("nettest");
VIGIL_NETTEST(over_tcp, over_unix, over_memory, over_virtual_memory);
TEST_SUITE_END();

}  // namespace vigil::io_testing

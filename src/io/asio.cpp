// Compiles Asio once: the code that BOOST_ASIO_SEPARATE_COMPILATION leaves out of its
// headers.
#include <boost/asio/impl/src.hpp>

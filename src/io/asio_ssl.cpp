// Compiles Asio's TLS once: the code that BOOST_ASIO_SEPARATE_COMPILATION leaves out of
// its headers.
#include <boost/asio/ssl/impl/src.hpp>

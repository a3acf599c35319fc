// TM2 of tls_is_missing.hpp. It stands before tls_is_missing.cpp in the archive.
#include "io/tls_is_missing.hpp"

#ifdef BOOST_ASIO_DISABLE_VISIBILITY  // the static library

asm(VIGIL_TLS_GROUP ".byte 0\n.previous\n");

#endif

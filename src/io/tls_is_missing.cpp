// TM1 of tls_is_missing.hpp.
#include "io/tls_is_missing.hpp"

#include "io/asio_ssl_names.hpp"

#ifdef BOOST_ASIO_DISABLE_VISIBILITY  // the static library

#define VIGIL_WEAK(name) ".weak " name "\n" name ":\n"

asm(VIGIL_TLS_GROUP ".balign 8\n" VIGIL_ASIO_SSL_NAMES(VIGIL_WEAK) ".quad " VIGIL_TLS_IS_MISSING
                                                                   "\n.previous\n");

#endif

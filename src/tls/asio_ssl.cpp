// Compiles Asio's TLS once: the code that BOOST_ASIO_SEPARATE_COMPILATION leaves out of
// its headers.
#include "io/tls_is_missing.hpp"

#include <boost/asio/ssl/impl/src.hpp>

#ifdef BOOST_ASIO_DISABLE_VISIBILITY  // the static library: TM1

asm(".section .rodata\n"
    ".globl " VIGIL_TLS_IS_MISSING "\n.hidden " VIGIL_TLS_IS_MISSING "\n" VIGIL_TLS_IS_MISSING
    ":\n.byte 0\n.previous\n");

#endif

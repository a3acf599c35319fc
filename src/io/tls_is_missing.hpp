// The linker's message to a program that uses asio::ssl, and links vigil-io alone.
//
// The danger. Such a program has some ten undefined references, none of which says that
// vigil-tls defines them all.
//
// The rule. A member of the static libvigil-io.a (tls_is_missing.cpp) has a weak symbol
// for each of those functions, so the linker takes it in when one of them is still
// undefined. It needs a symbol whose name is the message: that is what the linker prints.
// vigil-tls defines that symbol, in the object that defines the functions.
//
// TM1  The functions of vigil-tls, or of a program that compiles asio/ssl/impl/src.hpp
//      itself, count: they are not weak. If vigil-tls comes after vigil-io in the
//      command, the message is what has the linker take them in.
// TM2  The weak symbols and the message are in one COMDAT group. A linker that takes in
//      all members (--whole-archive) meets the empty group of that name first, in
//      tls_is_missing_first.cpp, and drops this one.
//
// A shared library's symbols are all there from the start: it has none of this.
#pragma once

#define VIGIL_TLS_IS_MISSING                                                                   \
  "\"vigil::tls (pkg-config, meson: vigil-tls): this program uses boost::asio::ssl, which is " \
  "not in vigil::io\""
#define VIGIL_TLS_GROUP \
  ".section .data.rel.ro.vigil_tls, \"awG\", %progbits, vigil_tls_is_missing, comdat\n"

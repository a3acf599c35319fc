// debug_layout: a text in every program that says where the library's classes keep their
// members, so that a debugger's script reads them without debug information.
//
// The first line is "vigil debug layout 1"; a script refuses another number. Each other
// line is KEY=VALUE, in any order:
//
//   fiber_core.magic=0     the offset of a member, in bytes
//   sizeof.slab=128        the size of a type
//   value.fiber_core.live_magic=…    a constant
//   wait_reason.1=sleep    the text of a value in dumps
//
// A new key needs no new number; a key that goes, or changes its meaning, does.
#pragma once

#include <vigil/detail/config.hpp>

namespace VIGIL_DETAIL {

// Writes the text, and is a friend of the classes whose members it names. Both are
// defined in debug/layout.cpp.
struct debug_layout;
struct debug_layout_text;

extern "C" const debug_layout_text vigil_debug_layout;

}  // namespace VIGIL_DETAIL

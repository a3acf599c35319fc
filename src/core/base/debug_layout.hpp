// debug_layout: a text in every program that says where the library's classes keep their
// members, so that a debugger's script reads them without debug information.
//
// The first line is "vigil debug layout 3"; a script refuses another number. Each other
// line is KEY=VALUE, in any order but for the fields:
//
//   fiber_core.magic=0     the offset of a member, in bytes
//   sizeof.slab=128        the size of a type
//   value.fiber_core.live_magic=…    a constant
//   wait_reason.1=sleep    the text of a value in dumps
//   fiber_field=flag 96 1 stop_requested , stop requested
//                          a field of a fiber, in their order (fiber_view.hpp): its kind,
//                          offset, size and key, and the words before it; tabs in between
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

// report: a report of all fibers, written out as text or as JSON.
#pragma once

#include "inspect/fiber_report.hpp"

#include <vigil/detail/config.hpp>

#include <string>

namespace vigil::inline VIGIL_ABI::detail {

class dump_writer;
class symbol_reader;

VIGIL_FOR_IO void write_frames(dump_writer& out, const frame_list& frames, symbol_reader& names);

// A line for each fiber, and below those with the same frames these frames.
void write_text(dump_writer& out, const fiber_report& r, bool with_addresses);

// One object. Throws std::bad_alloc.
std::string to_json(const fiber_report& r, bool with_addresses);

}  // namespace vigil::inline VIGIL_ABI::detail

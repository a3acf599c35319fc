// report: a report of all fibers and tasks, written out as text or as JSON.
#pragma once

#include "inspect/fiber_report.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <string>

namespace VIGIL_DETAIL {

class dump_writer;
class symbol_reader;

VIGIL_FOR_IO void write_frames(dump_writer& out, const frame_list& frames, symbol_reader& names);

// A line for each fiber, and below those with the same frames these frames.
void write_text(dump_writer& out, fiber_report& r, symbol_reader& names, bool with_addresses);

// A line for each task; of more than some with equal birth and wait, `at_most` of them,
// and how many the others are. Throws std::bad_alloc.
void write_tasks(dump_writer& out, fiber_report& r, std::size_t at_most, bool with_addresses);

// One object. Throws std::bad_alloc.
std::string to_json(fiber_report r, bool with_addresses);

}  // namespace VIGIL_DETAIL

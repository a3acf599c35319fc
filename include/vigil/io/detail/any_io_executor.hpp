// boost::asio::any_io_executor, for programs that another compiler builds than vigil-io.
//
// With BOOST_ASIO_SEPARATE_COMPILATION Asio declares these, and vigil-io has
// them; but g++ and clang++ give them different names, because their constraint
// has a default argument that only one of the two puts there. So who uses one
// has it from here.
#pragma once

#include <vigil/io/detail/config.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution/relationship.hpp>

namespace boost::asio {

template <>
inline any_io_executor any_io_executor::require(const execution::blocking_t::never_t& p,
                                                int) const {
  return static_cast<const base_type&>(*this).require(p);
}

template <>
inline any_io_executor any_io_executor::prefer(const execution::blocking_t::possibly_t& p,
                                               int) const {
  return static_cast<const base_type&>(*this).prefer(p);
}

template <>
inline any_io_executor any_io_executor::prefer(const execution::outstanding_work_t::tracked_t& p,
                                               int) const {
  return static_cast<const base_type&>(*this).prefer(p);
}

template <>
inline any_io_executor any_io_executor::prefer(const execution::outstanding_work_t::untracked_t& p,
                                               int) const {
  return static_cast<const base_type&>(*this).prefer(p);
}

template <>
inline any_io_executor any_io_executor::prefer(const execution::relationship_t::fork_t& p,
                                               int) const {
  return static_cast<const base_type&>(*this).prefer(p);
}

template <>
inline any_io_executor any_io_executor::prefer(const execution::relationship_t::continuation_t& p,
                                               int) const {
  return static_cast<const base_type&>(*this).prefer(p);
}

}  // namespace boost::asio

// boost::asio::any_io_executor, for programs built by another compiler than vigil-io.
//
// With BOOST_ASIO_SEPARATE_COMPILATION Asio declares the members below, and vigil-io
// defines them. But g++ and clang++ give them different names, because only one of the
// two includes a default argument of their constraint. So each file that uses them
// includes this one.
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

// A library of the program's own that uses Asio and knows nothing of vigil.
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

void later(boost::asio::io_context& context, void (*f)()) {
  boost::asio::post(context, f);
}

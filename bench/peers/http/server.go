// The HTTP peer in Go: net/http as it comes, with the timeouts of vigil's server.
// Prints its port.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

func main() {
	http.HandleFunc("/hello", func(out http.ResponseWriter, in *http.Request) {
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(out, "hello, world\n")
	})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{IdleTimeout: 120 * time.Second, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(listener))
}

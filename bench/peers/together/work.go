// Go, for `./dev bench --peers together`: work.go WORK PROCS. The works are those of
// bench/together/work.cpp that have the same name.
package main

import (
	"fmt"
	"math/rand"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How long the threads of the process have been ready without a processor.
func runDelay() int64 {
	all := int64(0)
	tasks, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			waited, _ := strconv.ParseInt(fields[1], 10, 64)
			all += waited
		}
	}
	return all
}

func measure(operations int, f func()) {
	delay, cpu, begun := runDelay(), cpuTime(), time.Now()
	f()
	elapsed, used := time.Since(begun), cpuTime()-cpu
	n := float64(operations)
	fmt.Printf("cpu=%.1f elapsed=%.1f wakes=0 delay=%.1f\n", float64(used)/n, float64(elapsed)/n,
		float64(runDelay()-delay)/n)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func talk(room int, n int) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	near, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	far, err := listener.Accept()
	check(err)
	var ends sync.WaitGroup
	ends.Add(2)
	go func() {
		defer ends.Done()
		bytes := make([]byte, room)
		for i := 0; i < n; i++ {
			far.SetDeadline(time.Now().Add(10 * time.Second))
			_, err := far.Read(bytes)
			check(err)
			far.Write(bytes[:1])
		}
	}()
	go func() {
		defer ends.Done()
		bytes := make([]byte, room)
		for i := 0; i < n; i++ {
			near.SetDeadline(time.Now().Add(10 * time.Second))
			near.Write(bytes[:1])
			_, err := near.Read(bytes)
			check(err)
		}
	}()
	ends.Wait()
}

func stream(room int) {
	const n = 40_000
	talk(room, n/10)
	measure(n, func() { talk(room, n) })
}

func sleepAll(n int) {
	var all sync.WaitGroup
	all.Add(n)
	dice := rand.New(rand.NewSource(1))
	for i := 0; i < n; i++ {
		d := time.Duration(dice.Int63n(int64(time.Second)))
		go func() {
			time.Sleep(d)
			all.Done()
		}()
	}
	all.Wait()
}

func waitAtGate(n int) {
	var all sync.WaitGroup
	all.Add(n)
	open := make(chan struct{})
	for i := 0; i < n; i++ {
		go func() {
			<-open
			all.Done()
		}()
	}
	close(open)
	all.Wait()
}

func sleepersAgain(n int) {
	waitAtGate(n)
	measure(n, func() { sleepAll(n) })
}

func gate() {
	const n = 10_000
	measure(n, func() { waitAtGate(n) })
}

func gateAgain() {
	const n = 10_000
	waitAtGate(n)
	measure(n, func() { waitAtGate(n) })
}

func hops() {
	const n = 300_000
	there, back := make(chan int), make(chan int)
	measure(n, func() {
		var ends sync.WaitGroup
		ends.Add(2)
		go func() {
			defer ends.Done()
			for i := 0; i < n; i++ {
				back <- <-there
			}
		}()
		go func() {
			defer ends.Done()
			for i := 0; i < n; i++ {
				there <- 1
				<-back
			}
		}()
		ends.Wait()
	})
}

func main() {
	works := map[string]func(){
		"stream":    func() { stream(1) },
		"stream4k":  func() { stream(4096) },
		"sleepers2": func() { sleepersAgain(100_000) },
		"million2":  func() { sleepersAgain(1_000_000) },
		"gate":      gate,
		"gate2":     gateAgain,
		"hops":      hops,
	}
	if len(os.Args) != 3 || works[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: together_go WORK PROCS")
		os.Exit(2)
	}
	procs, _ := strconv.Atoi(os.Args[2])
	runtime.GOMAXPROCS(procs)
	works[os.Args[1]]()
}

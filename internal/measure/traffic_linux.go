package measure

import (
	"cmp"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"subctl/internal/nstest"
)

// Path is the path on which TCP connections are measured.
//
// Both ends run on the first CPU. With several CPUs, it makes more of a difference on
// which of them the kernel happens to handle the packets of a connection than which of
// two paths the connection takes.
type Path struct {
	From, To nstest.Host
	// Called is the address at which From reaches To; empty if that is the address of To.
	Called string
	// Between are the other namespaces on the path, whose programs handle packets.
	Between []*nstest.NS
	// Window limits how many bytes are on their way, if not 0: it is the size of the
	// receiver's socket buffer (SO_RCVBUF).
	Window int
}

// A measurement of throughput discards what arrives while the connection starts, and
// then counts what arrives, for so long and at least so many bytes. It is short: see
// Compare.
const (
	start      = 20 * time.Millisecond
	slice      = 60 * time.Millisecond
	sliceBytes = 1 << 20 // hundreds of packets, where the machine is slow
)

// congestion is the congestion control of all connections. The machine's own may be one that
// estimates the rate of the path, such as BBR: the size of its bursts, and with it the work that a
// byte takes, differs from connection to connection.
const congestion = "reno"

// patience is the time for which a connection may stand still.
const patience = 20 * time.Second

// roundTrips is the number of round trips in one measurement.
const roundTrips = 700

// OneCPU binds the threads of namespaces to the first CPU, and with them the programs
// that they start later.
func OneCPU(t testing.TB, namespaces ...*nstest.NS) {
	t.Helper()
	for _, ns := range namespaces {
		var err error
		ns.Do(func() { err = onFirstCPU() })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onFirstCPU binds the calling thread.
func onFirstCPU() error {
	var first unix.CPUSet
	first.Set(0)
	return unix.SchedSetaffinity(0, &first)
}

// Throughput returns how many bits arrive through a new connection in a second of CPU
// time: of both ends, of the programs between them, and of the kernel. That is what one CPU
// can carry, whatever other programs on the machine take from it. It is a second
// that passes instead if the kernel does not count the time it spends on packets.
func (p Path) Throughput(t testing.TB) float64 {
	t.Helper()
	var bits float64
	clock := p.clock(t)
	p.connect(t, send, func(fd int) error {
		buf := make([]byte, 1<<17)
		if _, err := receive(fd, buf, start, 0); err != nil {
			return err
		}
		began := clock()
		n, err := receive(fd, buf, slice, sliceBytes)
		bits = float64(8*n) / (clock() - began)
		return err
	})
	return bits
}

// CompareSettings compares the throughput of a path with two settings, between which it switches:
// ours and other set them. All turns are of one connection. Connections differ more from each other
// than most settings do, as the kernel puts together packets of one in larger pieces than those of
// another.
func (p Path) CompareSettings(t testing.TB, turns int, ours, other func()) (c Comparison) {
	t.Helper()
	clock := p.clock(t)
	p.connect(t, send, func(fd int) (err error) {
		buf := make([]byte, 1<<17)
		throughput := func(set func()) func() float64 {
			return func() float64 {
				set()
				if _, e := receive(fd, buf, start, 0); e != nil {
					err = e
				}
				began := clock()
				n, e := receive(fd, buf, slice, sliceBytes)
				if e != nil {
					err = e
				}
				return float64(8*n) / (clock() - began)
			}
		}
		c = Compare(turns, throughput(ours), throughput(other))
		return err
	})
	return c
}

// send sends until the receiver has counted enough.
func send(fd int) error {
	chunk := make([]byte, 1<<17)
	for {
		if _, err := retry(unix.Write, fd, chunk); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// receive reads for so long and at least so many bytes. It returns how many bytes it read.
func receive(fd int, buf []byte, d time.Duration, least int) (total int, err error) {
	for began := time.Now(); time.Since(began) < d || total < least; {
		n, err := retry(unix.Read, fd, buf)
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, io.ErrUnexpectedEOF
		}
		total += n
	}
	return total, nil
}

// RoundTrip returns the median time, in seconds, in which one byte is answered by
// another through a new connection.
func (p Path) RoundTrip(t testing.TB) float64 {
	t.Helper()
	var rtts Values
	p.connect(t, func(fd int) error {
		buf := make([]byte, 1)
		for range roundTrips {
			began := time.Now()
			if _, err := retry(unix.Write, fd, buf); err != nil {
				return err
			}
			if _, err := retry(unix.Read, fd, buf); err != nil {
				return err
			}
			rtts = append(rtts, time.Since(began).Seconds())
		}
		return nil
	}, func(fd int) error {
		buf := make([]byte, 1)
		for {
			n, err := retry(unix.Read, fd, buf)
			if n <= 0 || err != nil {
				return err
			}
			if _, err := retry(unix.Write, fd, buf); err != nil {
				return err
			}
		}
	})
	return rtts.Median()
}

// connect opens a connection, and runs client and server at its ends, each on a thread
// of its own with a blocking socket.
func (p Path) connect(t testing.TB, client, server func(fd int) error) {
	t.Helper()
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if p.Window == 0 {
			return nil
		}
		failed := c.Control(
			func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, p.Window) })
		return errors.Join(failed, err)
	}}
	dial := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
		})
		return errors.Join(failed, err)
	}}
	var l net.Listener
	var err error
	p.To.NS.Do(func() { l, err = listen.Listen(t.Context(), "tcp4", p.To.IP+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		ended <- blocking(c, server)
	}()
	p.From.NS.Do(func() {
		var c net.Conn
		_, port, _ := net.SplitHostPort(l.Addr().String()) // it has one
		if c, err = dial.Dial("tcp4", net.JoinHostPort(cmp.Or(p.Called, p.To.IP), port)); err == nil {
			err = blocking(c, client)
		}
	})
	if err != nil {
		t.Fatalf("from %s to %s: %v", p.From.IP, p.To.IP, err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("at %s, from %s: %v", p.To.IP, p.From.IP, err)
	}
}

// blocking runs f with a blocking socket on the first CPU, and closes the connection.
// It takes over the calling thread, which no other goroutine can use afterward.
func blocking(c net.Conn, f func(fd int) error) error {
	runtime.LockOSThread() // never unlocked: a thread that is bound to a CPU is of no use to others
	if err := onFirstCPU(); err != nil {
		c.Close()
		return err
	}
	file, err := c.(*net.TCPConn).File()
	c.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	fd := int(file.Fd())
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return err
		}
	}
	return f(fd)
}

// retry calls a system call again if a signal interrupted it, as happens to blocking
// sockets that have a timeout.
func retry(call func(int, []byte) (int, error), fd int, buf []byte) (n int, err error) {
	for {
		if n, err = call(fd, buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

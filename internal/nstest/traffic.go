//go:build linux

package nstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Marker is in every packet that Reach sends: if it can be read on the way, everything can.
// It has 16 bytes, the length of ping(8)'s pattern: see Pattern.
const Marker = "nstest's marker."

// Pattern is the option that makes ping send Marker.
var Pattern = fmt.Sprintf("-p %x", Marker)

// Host is an address in a namespace.
type Host struct {
	NS *NS
	IP string
}

// Until waits until one host answers pings of another. A cable whose keys are not
// negotiated yet loses the first pings.
func Until(t testing.TB, from, to Host) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; {
		said, err := from.NS.Try(fmt.Sprintf("ping -c1 -W1 -I %s %s", from.IP, to.IP))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not reach %s:\n%s", from.IP, to.IP, said)
		}
	}
}

// Reach sends ICMP, UDP and TCP packets of awkward sizes from one host to another, which
// must see the sender's own address. The largest packet between them has mtu bytes, and
// both ends of a TCP connection must use segments of that size.
func Reach(t testing.TB, from, to Host, mtu int) {
	t.Helper()
	Until(t, from, to)
	for _, size := range []int{0, 56, mtu - 29, mtu - 28, mtu - 27, mtu - 8, 1472, 1473, 4000, 30000} {
		from.NS.Run(fmt.Sprintf("ping -Mdont -c1 -W5 -s%d -I %s %s", size, from.IP, to.IP))
	}
	from.NS.Run(fmt.Sprintf("ping -Mdo -c1 -W5 -s%d -I %s %s", mtu-28, from.IP, to.IP))
	for _, size := range []int{1, mtu - 28, mtu - 27, 9000, 60000} {
		datagram(t, from, to, size)
	}
	stream(t, from, to, mtu)
}

// datagram sends a UDP datagram of the given size, which must arrive.
func datagram(t testing.TB, from, to Host, size int) {
	t.Helper()
	var l net.PacketConn
	var err error
	to.NS.Do(func() { l, err = net.ListenPacket("udp4", to.IP+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	what := bytes.Repeat([]byte(Marker), size/len(Marker)+1)[:size]
	var c net.Conn
	from.NS.Do(func() {
		c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from.IP)}}).Dial("udp4", l.LocalAddr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	for range 3 { // the first datagram that is too large is lost, and the sender learns the MTU of the path
		if _, err = c.Write(what); err != nil {
			continue
		}
		_ = l.SetReadDeadline(time.Now().Add(2 * time.Second))
		var n int
		var whom net.Addr
		if n, whom, err = l.ReadFrom(buf); err != nil {
			continue
		}
		if !bytes.Equal(buf[:n], what) || whom.(*net.UDPAddr).IP.String() != from.IP {
			t.Fatalf("%d bytes of %d arrived from %v, not from %s", n, size, whom, from.IP)
		}
		return
	}
	t.Fatalf("UDP of %d bytes from %s to %s: %v", size, from.IP, to.IP, err)
}

// stream sends a megabyte by TCP.
func stream(t testing.TB, from, to Host, mtu int) {
	t.Helper()
	const megabyte = 1 << 20
	var l net.Listener
	var err error
	to.NS.Do(func() { l, err = net.Listen("tcp4", to.IP+":0") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			seen <- err.Error()
			return
		}
		defer c.Close()
		n, err := io.CopyN(io.Discard, c, megabyte)
		seen <- fmt.Sprintf("%d bytes from %v in segments of %d: %v", n, c.RemoteAddr().(*net.TCPAddr).IP, segment(c),
			err)
	}()
	var c net.Conn
	from.NS.Do(func() {
		d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.IP)}}
		c, err = d.Dial("tcp4", l.Addr().String())
	})
	if err != nil {
		t.Fatalf("TCP from %s to %s: %v", from.IP, to.IP, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := c.Write(bytes.Repeat([]byte(Marker), megabyte/len(Marker))); err != nil {
		t.Fatalf("TCP from %s to %s: %v", from.IP, to.IP, err)
	}
	size := mtu - 20 - 20 - 12 // the headers of IPv4 and TCP, and time stamps
	if got, want := <-seen, fmt.Sprintf("%d bytes from %s in segments of %d: <nil>", megabyte, from.IP,
		size); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	if got := segment(c); got != size {
		t.Fatalf("%s sends segments of %d bytes to %s: %d fit", from.IP, got, to.IP, size)
	}
}

// segment returns the maximum segment size of a connection, in bytes.
func segment(c net.Conn) (n int) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { n, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG) })
	return n
}

// grace is the time that an answer may take before Ping counts the packet as lost.
const grace = 2 * time.Second

// Ping sends so many packets a second, with options of ping(8), until ended is called,
// which returns the number of packets that were sent until then, and of those without an answer. It
// takes as long as an answer may take. The namespace can be used meanwhile.
func (n *NS) Ping(perSecond int, options string) (ended func() (sent, lost int)) {
	n.t.Helper()
	said := filepath.Join(n.t.TempDir(), "ping")
	n.Start(
		fmt.Sprintf("echo $$ >%[1]s.pid; exec ping -i%[2]g %[3]s >%[1]s 2>%[1]s.status", said, 1/float64(perSecond),
			options),
	)
	read := func(file string, done func(string) bool) {
		n.t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile(file)
			if err == nil && done(string(text)) {
				return
			}
			if time.Now().After(deadline) {
				n.t.Fatalf("ping %s: %s ends with %q", options, file, text[max(0, len(text)-200):])
			}
		}
	}
	pid := 0
	read(said+".pid", func(text string) bool {
		pid, _ = strconv.Atoi(strings.TrimSpace(text))
		return pid > 0
	})
	read(fmt.Sprintf("/proc/%d/status", pid), func(text string) bool {
		return strings.HasPrefix(text, "Name:\tping\n") && catches(text, syscall.SIGINT)
	})
	signal := func(s syscall.Signal) {
		n.t.Helper()
		if err := syscall.Kill(pid, s); err != nil {
			n.t.Fatalf("ping %s: %v", options, err)
		}
	}
	return func() (sent, lost int) {
		n.t.Helper()
		signal(syscall.SIGQUIT) // which prints how many have been sent
		read(said+".status", func(text string) bool {
			status := strings.LastIndex(text, "\r") + 1
			found, _ := fmt.Sscanf(text[status:], "%d/%d packets", &lost, &sent)
			return found == 2
		})
		time.Sleep(grace)
		signal(syscall.SIGINT)
		read(said, func(text string) bool {
			answers, _, ended := strings.Cut(text, "statistics ---\n")
			lost = sent - answered(answers, sent)
			return ended
		})
		if sent == lost {
			n.t.Fatalf("ping %s: none of %d packets was answered", options, sent)
		}
		return sent, lost
	}
}

// sequence finds the number of a packet that was answered in the output of ping, which numbers
// packets from 1.
var sequence = regexp.MustCompile(`(?m) icmp_seq=(\d+) ttl=`)

// answered returns how many of the first most packets were answered.
func answered(output string, most int) int {
	seen := map[int]bool{}
	for _, m := range sequence.FindAllStringSubmatch(output, -1) {
		if seq, err := strconv.Atoi(m[1]); err == nil && seq <= most {
			seen[seq] = true
		}
	}
	return len(seen)
}

// catches reports whether a process with the given /proc/PID/status has a handler for a
// signal.
func catches(status string, s syscall.Signal) bool {
	_, mask, _ := strings.Cut(status, "SigCgt:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	caught, _ := strconv.ParseUint(mask, 16, 64)
	return caught>>(s-1)&1 == 1
}

// Sight describes the packets that were seen on a device.
type Sight struct {
	Longest   int // length of the longest IPv4 packet, in bytes
	Fragments bool
	Marker    bool
}

// Watch captures all packets of an Ethernet device until the function that it returns is
// called.
//
// It runs tcpdump, which copies each packet at once. Namespaces share the memory of
// packets: a packet that is read later may already have been decrypted in place at the
// other end.
func (n *NS) Watch(dev string) func() Sight {
	n.t.Helper()
	file := filepath.Join(n.t.TempDir(), "capture")
	stop := n.Start(fmt.Sprintf("exec tcpdump --immediate-mode -Z root -U -B 16384 -w %s -i %s 2>/dev/null", file, dev))
	// https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html
	const fileHeader, recordHeader, etherHeader = 24, 16, 14
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(file); err == nil && info.Size() >= fileHeader {
			break
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("%s: tcpdump on %s does not begin", n.Name, dev)
		}
	}
	return func() (s Sight) {
		n.t.Helper()
		time.Sleep(200 * time.Millisecond) // for packets that the kernel has not passed to tcpdump yet
		stop()
		b, err := os.ReadFile(file)
		if err != nil {
			n.t.Fatal(err)
		}
		for b = b[fileHeader:]; len(b) >= recordHeader; {
			size := recordHeader + int(binary.NativeEndian.Uint32(b[8:]))
			if size > len(b) {
				break // tcpdump was stopped while it wrote the packet
			}
			if size >= recordHeader+etherHeader {
				s.add(b[recordHeader+etherHeader-2 : size])
			}
			b = b[size:]
		}
		if s.Longest == 0 {
			n.t.Fatalf("%s: no packet was seen on %s: the test is blind", n.Name, dev)
		}
		return s
	}
}

// add adds a packet, which follows its type.
func (s *Sight) add(b []byte) {
	const ipv4 = 0x0800
	s.Marker = s.Marker || bytes.Contains(b, []byte(Marker))
	if binary.BigEndian.Uint16(b) != ipv4 || len(b) < 2+20 {
		return
	}
	s.Longest = max(s.Longest, int(binary.BigEndian.Uint16(b[4:])))
	s.Fragments = s.Fragments || binary.BigEndian.Uint16(b[8:])&0x3fff != 0 // more fragments follow, or an offset
}

//go:build linux

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/dataplane/kernel/conntrack"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/nstest"
	"subctl/sdewan"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// A site in network namespaces:
//
//	lan 192.168.1.2 ── net0 ┐             ┌ isp1 198.51.100.1 ─┐
//	                        cnf ── net1 ──┘                    ├ far 192.0.2.1 to .9
//	                        │ └── net2 ──── isp2 203.0.113.1 ──┘
//	                        └──── eth0 ──── node 10.244.0.1, the default route of the pod
//
// The CNF runs in a process of its own, this test's program again: its sockets are then all in its
// namespace.
type site struct {
	t                               testing.TB
	lan, cnf, node, isp1, isp2, far *nstest.NS
	dir                             string
}

// apiAddress is where the REST API would be served.
const apiAddress = "10.244.0.7:443"

// testLinger is Agent.linger of the CNF.
const testLinger = 3 * time.Second

// settingsFile is the environment variable by which the test's program becomes a CNF.
const settingsFile = "CNF_AGENT_TEST"

func TestMain(m *testing.M) {
	if dir := os.Getenv(settingsFile); dir != "" {
		if err := runAgent(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runAgent runs an agent whose configuration is in a file, until it is ended. After each pass, it
// writes what it has planned, and the state of the uplinks, to another file.
func runAgent(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(dir, "pid"))
	var current atomic.Pointer[rest.Config]
	current.Store(&rest.Config{})
	a := New(Options{
		Attachments: attachments(),
		Uplinks:     uplinksOf(dir),
		API:         []netip.AddrPort{netip.MustParseAddrPort(apiAddress), netip.MustParseAddrPort("0.0.0.0:80")},
		Config:      func() rest.Config { return *current.Load() },
		Log:         slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Kernel: Kernel{
			Target:          func(o dataplane.Owner) (dataplane.Target, error) { return kernel.New(o) },
			Network:         kernel.ReadNetwork,
			Connections:     conntrack.Connections,
			Neighbours:      kernel.Neighbours,
			Watch:           kernel.WatchNetwork,
			MarkConnections: conntrack.MarkConnections,
			EndConnections:  conntrack.EndConnections,
			Forward:         kernel.Forward,
			Announce:        kernelprobe.Announce,
		},
	})
	a.linger = testLinger
	read := func() {
		b, err := os.ReadFile(filepath.Join(dir, "config"))
		next := &rest.Config{}
		if err != nil || json.Unmarshal(b, next) != nil || reflect.DeepEqual(next, current.Load()) {
			return
		}
		current.Store(next)
		a.Changed()
	}
	read() // a CNF that starts again has its rules from the first pass on
	go func() {
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			read()
		}
	}()
	a.passed = func(planned rest.Config) {
		report, err := a.Report()
		said := report.String()
		if err != nil {
			said += err.Error()
		}
		wan, _ := a.Status(ctx, "wan")
		b, _ := json.Marshal(map[string]any{"Planned": planned, "Report": said, "Wan": wan})
		_ = os.WriteFile(filepath.Join(dir, "status.new"), b, 0o600)
		_ = os.Rename(filepath.Join(dir, "status.new"), filepath.Join(dir, "status"))
	}
	return a.Run(ctx)
}

// attachments are the networks of the CNF.
func attachments() []sdewan.Attachment {
	return []sdewan.Attachment{
		{Network: "lan", Device: "net0"},
		{Network: "isp1", Device: "net1"},
		{Network: "isp2", Device: "net2"},
	}
}

// uplinks are its uplinks, which it pings every second.
func uplinks() map[string]sdewan.Uplink {
	uplink := func(gateway string) sdewan.Uplink {
		u := sdewan.DefaultUplink
		u.Gateway = netip.MustParseAddr(gateway)
		u.TrackIPs = []netip.Addr{netip.MustParseAddr(gateway)}
		u.Interval = 1
		u.Timeout = 1
		u.Up = 2
		u.Down = 2
		return u
	}
	return map[string]sdewan.Uplink{"isp1": uplink("198.51.100.1"), "isp2": uplink("203.0.113.1")}
}

// newSite returns a site whose CNF runs without a configuration.
func newSite(t testing.TB) *site {
	t.Helper()
	s := newNetworks(t)
	s.start()
	s.apply(rest.Config{})
	return s
}

// start starts the CNF.
func (s *site) start() {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	s.cnf.Start(fmt.Sprintf("%s=%s exec %s", settingsFile, s.dir, program))
}

// end ends the CNF as a node ends a container, and waits for its end.
func (s *site) end() {
	s.t.Helper()
	file := filepath.Join(s.dir, "pid")
	b, err := os.ReadFile(file)
	require.NoError(s.t, err)
	pid, err := strconv.Atoi(string(b))
	require.NoError(s.t, err)
	require.NoError(s.t, syscall.Kill(pid, syscall.SIGTERM))
	s.until("the CNF has ended", func() bool { _, err := os.Stat(file); return os.IsNotExist(err) })
}

// newNetworks returns a site without a CNF.
func newNetworks(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir()}
	for _, n := range []struct {
		name string
		ns   **nstest.NS
	}{{"lan", &s.lan}, {"cnf", &s.cnf}, {"node", &s.node}, {"isp1", &s.isp1}, {"isp2", &s.isp2}, {"far", &s.far}} {
		*n.ns = nstest.New(t, n.name)
		(*n.ns).Run(
			"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
	}
	nstest.Join(nstest.End{NS: s.lan, Dev: "eth0", Addr: "192.168.1.2/24"},
		nstest.End{NS: s.cnf, Dev: "net0", Addr: "192.168.1.254/24"})
	nstest.Join(nstest.End{NS: s.node, Dev: "cnf", Addr: "10.244.0.1/24"},
		nstest.End{NS: s.cnf, Dev: "eth0", Addr: "10.244.0.7/24"})
	s.cnf.Run("ip route add default via 10.244.0.1")
	nstest.Join(nstest.End{NS: s.isp1, Dev: "cnf", Addr: "198.51.100.1/24"},
		nstest.End{NS: s.cnf, Dev: "net1", Addr: "198.51.100.2/24"})
	nstest.Join(nstest.End{NS: s.isp2, Dev: "cnf", Addr: "203.0.113.1/24"},
		nstest.End{NS: s.cnf, Dev: "net2", Addr: "203.0.113.2/24"})
	nstest.Join(nstest.End{NS: s.isp1, Dev: "far", Addr: "10.1.0.1/24"},
		nstest.End{NS: s.far, Dev: "isp1", Addr: "10.1.0.2/24"})
	nstest.Join(nstest.End{NS: s.isp2, Dev: "far", Addr: "10.2.0.1/24"},
		nstest.End{NS: s.far, Dev: "isp2", Addr: "10.2.0.2/24"})
	s.lan.Run(
		"ip addr add 192.168.1.1/24 dev eth0 && ip addr add 192.168.1.3/24 dev eth0 && ip route add default via 192.168.1.254")
	for _, isp := range []*nstest.NS{s.isp1, s.isp2} {
		isp.Run("sysctl -qw net.ipv4.ip_forward=1")
	}
	s.isp1.Run(
		"ip route add 192.0.2.0/24 via 10.1.0.2 && ip route add 192.168.1.0/24 via 198.51.100.2 && ip route add 1.2.3.4 via 198.51.100.2")
	s.isp2.Run(
		"ip route add 192.0.2.0/24 via 10.2.0.2 && ip route add 192.168.1.0/24 via 203.0.113.2 && ip route add 1.2.3.4 via 203.0.113.2")
	s.far.Run(
		"for i in 1 2 3 4 5 6 7 8 9; do ip addr add 192.0.2.$i/32 dev lo; done; ip route add 198.51.100.0/24 via 10.1.0.1; ip route add 203.0.113.0/24 via 10.2.0.1; ip route add 1.2.3.4 via 10.1.0.1")
	// Replies to the LAN go back the way that the connection came.
	s.far.Run(`ip route add 192.168.1.0/24 via 10.1.0.1 table 11; ip route add 192.168.1.0/24 via 10.2.0.1 table 12
ip rule add pref 11 fwmark 1 lookup 11; ip rule add pref 12 fwmark 2 lookup 12; ip route add 192.168.1.0/24 via 10.1.0.1
nft -f - <<'END'
table ip back {
	chain in { type filter hook prerouting priority -150; iifname "isp1" ct mark set 1; iifname "isp2" ct mark set 2; }
	chain out { type route hook output priority -150; meta mark set ct mark; }
}
END`)
	return s
}

// apply gives the CNF a configuration without mistakes, and waits until its kernel holds it.
func (s *site) apply(c rest.Config) {
	s.t.Helper()
	require.Empty(s.t, s.applyPart(c))
}

// applyPart returns what the CNF leaves out.
func (s *site) applyPart(c rest.Config) string {
	s.t.Helper()
	b := s.write(c)
	var planned rest.Config
	require.NoError(s.t, json.Unmarshal(b, &planned))
	s.until("the kernel holds the configuration",
		func() bool { got := s.status().Planned; return got != nil && reflect.DeepEqual(*got, planned) })
	return s.status().Report
}

// write gives the CNF a configuration, and returns its file.
func (s *site) write(c rest.Config) []byte {
	s.t.Helper()
	b, err := json.Marshal(c)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "config.new"), b, 0o600))
	require.NoError(s.t, os.Rename(filepath.Join(s.dir, "config.new"), filepath.Join(s.dir, "config")))
	return b
}

// status is what the agent has written last.
type status struct {
	Planned *rest.Config
	Report  string
	Wan     struct {
		Interfaces map[string]uplinkStatus `json:"interfaces"`
	}
}

func (s *site) status() (out status) {
	if b, err := os.ReadFile(filepath.Join(s.dir, "status")); err == nil {
		_ = json.Unmarshal(b, &out)
	}
	return out
}

// online waits until an uplink is online, or offline.
func (s *site) online(name string, want bool) {
	s.t.Helper()
	word := map[bool]string{true: "online", false: "offline"}[want]
	s.until(name+" is "+word, func() bool { return s.status().Wan.Interfaces[name].Status == word })
}

func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within a minute: %s\n%+v\n%s", what, s.status(),
				s.cnf.Run("nft list ruleset; ip rule; ip route show table all"))
		}
	}
}

// server accepts TCP connections at an address, and answers each with the address of the client and
// what it sent.
func server(t testing.TB, ns *nstest.NS, at string) {
	t.Helper()
	var l net.Listener
	var err error
	ns.Do(func() { l, err = net.Listen("tcp4", at) })
	require.NoError(t, err)
	answer(t, l)
}

// answer does what server does, on a listener.
func answer(t testing.TB, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				fmt.Fprintln(c, host)
				buf := make([]byte, 100)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
}

// dial opens a TCP connection, and returns the address that the server sees.
func dial(ns *nstest.NS, from, to string) (c net.Conn, seen string, err error) {
	ns.Do(func() {
		d := net.Dialer{Timeout: 2 * time.Second}
		if from != "" {
			d.LocalAddr, err = net.ResolveTCPAddr("tcp4", from)
		}
		if err == nil {
			c, err = d.Dial("tcp4", to)
		}
	})
	if err != nil {
		return nil, "", err
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		c.Close()
		return nil, "", err
	}
	return c, strings.TrimSpace(string(buf[:n])), nil
}

// alive requires that a connection still works.
func alive(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	buf := make([]byte, 1)
	_, err = c.Read(buf)
	require.NoError(t, err)
}

// count returns how many connections have reached far through each uplink.
func (s *site) count() (one, two int) {
	s.t.Helper()
	read := func(chain string) (n int) {
		out := s.far.Run("nft list counter ip count " + chain)
		_, err := fmt.Sscanf(out[strings.Index(out, "packets"):], "packets %d", &n)
		require.NoError(s.t, err, out)
		return n
	}
	return read("one"), read("two")
}

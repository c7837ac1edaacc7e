package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/nstest"
	"subctl/internal/serving"
)

// serveOnly is the environment variable that makes the test binary serve metrics and probes as
// an agent does, and nothing else, so that its memory is that of serving.
const serveOnly = "SUBCTL_TEST_SERVE"

const (
	testMetrics = "127.0.0.1:32780"
	testProbes  = "127.0.0.1:32781"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveOnly) == "" {
		os.Exit(m.Run())
	}
	if err := serveBoth(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveBoth serves the metrics of a gateway with 100 connections, and probes.
func serveBoth() error {
	reg := prometheus.NewRegistry()
	m := newMeters("gateway", reg)
	var status submarinerv1.GatewayStatus
	for i := range 100 {
		name := fmt.Sprintf("cluster-%d", i)
		status.Connections = append(status.Connections, submarinerv1.Connection{
			Status:        submarinerv1.Connected,
			Driver:        "ipsec",
			DesiredDriver: "ipsec",
			Device:        "ipsec-tunnel",
			UsingIP:       "192.0.2.1",
			MTU:           1400,
			Endpoint:      submarinerv1.EndpointSpec{ClusterID: name, Hostname: name, CableName: name},
		})
	}
	m.setConnected(status, nil, time.Now())
	log := slog.New(slog.DiscardHandler)
	done := make(chan error, 1)
	go func() { done <- serving.Metrics(testMetrics, reg, log).Start(context.Background()) }()
	go func() {
		done <- serving.Probes(testProbes,
			map[string]func(*http.Request) error{"/healthz": func(*http.Request) error { return nil }},
			log).Start(context.Background())
	}()
	return <-done
}

// A connection of the node itself may have an agent's port. The agent does not end for this reason,
// and serves once the port is free.
func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	var logged nstest.Buffer
	go func() {
		ended <- serving.Metrics(taken.Addr().String(), prometheus.NewRegistry(),
			slog.New(slog.NewTextHandler(&logged, nil))).Start(ctx)
	}()
	require.Eventually(t, func() bool {
		return strings.Contains(logged.String(), "metrics are not served until their port is free")
	}, 30*time.Second, 10*time.Millisecond)
	require.Empty(t, ended)
	require.NoError(t, taken.Close())
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + taken.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(logged.String(), "WARN"))
	require.Contains(t, logged.String(), "ended: metrics are not served")
	stop()
	require.NoError(t, <-ended)
}

// Whoever reaches the port of the metrics costs an agent little memory, however many connections
// they open and whatever they send, and does not make the kubelet believe that the agent is dead.
func TestHostileConnections(t *testing.T) {
	ns := nstest.New(t, "node")
	server := startServing(t, ns)
	const request = "GET /metrics HTTP/1.1\r\nHost: x\r\n"
	for _, test := range []struct {
		name        string
		connections int
		send        string // on every connection
		endless     string // sent again and again, for two seconds
	}{
		{"send nothing", 10_000, "", ""},
		{"never end their headers", 10_000, request + "X-Slow: ", ""},
		{"send endless headers", 1_000, request, "X-Endless: " + strings.Repeat("x", 4000) + "\r\n"},
		{"send a header without an end", 1_000, request + "X-Long: ", strings.Repeat("x", 64<<10)},
		{
			"send endless bodies",
			1_000,
			"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n",
			strings.Repeat("x", 64<<10),
		},
		{"do not read the answers", 1_000, strings.Repeat(request+"\r\n", 100), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := memory(t, server)
			var conns []net.Conn
			ns.Do(func() { conns = dial(test.connections) })
			var writers sync.WaitGroup
			end := time.Now().Add(2 * time.Second)
			for _, c := range conns {
				defer c.Close()
				writers.Go(func() { flood(c, test.send, test.endless, end) })
			}
			ns.Do(func() { askHealth(t) })
			writers.Wait()
			ns.Do(func() { askHealth(t) })
			grown := memory(t, server) - before
			t.Logf("%d connections, %d KiB more", len(conns), grown)
			require.Less(t, grown, 32<<10, "KiB of memory")
		})
	}
}

// startServing starts the test binary as a server in a namespace and returns its process ID.
func startServing(t *testing.T, ns *nstest.NS) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveOnly+"=1")
	cmd.Stderr = os.Stderr
	var err error
	ns.Do(func() { err = cmd.Start() })
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	ns.Do(func() {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if c, err := net.Dial("tcp", testProbes); err == nil {
				_ = c.Close()
				return
			}
			require.True(t, time.Now().Before(deadline), "the server does not start")
		}
	})
	return cmd.Process.Pid
}

// dial opens connections to the metrics from 250 addresses. Some may fail: the server closes so
// many that the queue of the kernel may be full.
func dial(connections int) (conns []net.Conn) {
	for i := range connections {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%250))}
		if c, err := (&net.Dialer{LocalAddr: from, Timeout: 100 * time.Millisecond}).Dial("tcp4",
			testMetrics); err == nil {
			conns = append(conns, c)
		}
	}
	return conns
}

// flood sends a text, and then another one again and again, until the time has come or the other
// end has closed the connection.
func flood(c net.Conn, first, endless string, until time.Time) {
	_ = c.SetWriteDeadline(until)
	_, err := io.WriteString(c, first)
	for err == nil && endless != "" {
		_, err = io.WriteString(c, endless)
	}
}

// askHealth asks as the kubelet does, which waits for three seconds.
func askHealth(t *testing.T) {
	t.Helper()
	c, err := net.DialTimeout("tcp4", testProbes, 3*time.Second)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(3*time.Second)))
	_, err = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, http.StatusOK, r.StatusCode)
}

// memory returns the most memory that a process has had so far, in KiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib
		}
	}
	require.Fail(t, "no VmHWM")
	return 0
}

//go:build e2e

package e2e

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// capture is what passes a node's link to the others, until it is stopped.
type capture struct {
	file string
	end  io.Closer
	done func() error
}

// startCapture returns when tcpdump is listening. In immediate mode tcpdump reads each packet when
// it passes; otherwise it would lose the packets of up to a second when it is stopped.
func startCapture(t *testing.T, node, filter string) *capture {
	t.Helper()
	return startCaptureOn(t, node, "eth0", filter)
}

// startCaptureOn is startCapture for a device of the node, or "any".
func startCaptureOn(t *testing.T, node, device, filter string) *capture {
	t.Helper()
	c := &capture{file: filepath.Join(t.TempDir(), "wire.pcap")}
	cmd := command(t.Context(), "lab", "exec", node, "--", "sh", "-c",
		`tcpdump --immediate-mode -U -i "$2" -w "$0" "$1" & cat >/dev/null; kill -INT $!; wait`, c.file, filter, device)
	var err error
	c.end, err = cmd.StdinPipe()
	require.NoError(t, err)
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c.done = cmd.Wait
	lines := bufio.NewReader(said)
	for heard := ""; ; {
		line, err := lines.ReadString('\n')
		heard += line
		require.NoError(t, err, "tcpdump on %s: %s", node, heard)
		if strings.Contains(line, "listening on") {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return c
}

func (c *capture) stop(t *testing.T) {
	t.Helper()
	time.Sleep(500 * time.Millisecond) // for what tcpdump has yet to read
	require.NoError(t, c.end.Close())
	require.NoError(t, c.done())
}

// packets returns those that a filter passes, a line each, which begins with the time in seconds
// since 1970.
func (c *capture) packets(t *testing.T, filter string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "tcpdump", "-tt", "-nn", "-r", c.file, filter).Output()
	require.NoError(t, err, "tcpdump -r %s %q", c.file, filter)
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")[:strings.Count(string(out), "\n")]
}

// carriers tell, on the wire, the packets in which each driver carries traffic.
var carriers = map[string]string{
	"vxlan":           "udp port 4502",
	"wireguard":       "udp port 4501 and udp[8] = 4", // transport data
	"vxlan+wireguard": "udp port 4501 and udp[8] = 4",
	"ipsec":           "esp or (udp port 4500 and udp[8:4] != 0)", // no IKE
	"vxlan+ipsec":     "esp or (udp port 4500 and udp[8:4] != 0)",
}

// The messages by which keys are agreed on.
const (
	handshakes = "udp port 4501 and (udp[8] = 1 or udp[8] = 2)" // of WireGuard
	// of IKE, but for what keeps it alive (type 37, INFORMATIONAL)
	exchanges = "udp port 4500 and udp[8:4] = 0 and not (udp[30] = 37)"
)

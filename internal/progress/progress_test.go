package progress_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/progress"
)

func TestLines(t *testing.T) {
	var out strings.Builder
	p := progress.New(&out)
	p.Step("deploying the broker in %s", "submariner-k8s-broker")
	p.Done("deployed the broker")
	p.List("100 % of it:", []string{"a", "b"})
	p.Warn("%d nodes are gateways", 0)
	p.Fail("waiting: %v", errors.Join(errors.New("one"), errors.New("two")))
	require.Equal(t, ` • deploying the broker in submariner-k8s-broker …
 ✓ deployed the broker
 • 100 % of it:
     a
     b
 ⚠ 0 nodes are gateways
 ✗ waiting: one
   two
`, out.String())
}

// What a webhook or a kubelet says does not control the terminal.
func TestHostileLines(t *testing.T) {
	var out strings.Builder
	progress.New(&out).Warn("pod gw-1: %s", "denied\x1b[2J\x1b]0;owned\x07\r\nby \u202epolicy")
	require.Equal(t, " ⚠ pod gw-1: denied?[2J?]0;owned??\n   by ?policy\n", out.String())
}

func TestOneWriteALine(t *testing.T) {
	var w countingWriter
	p := progress.New(&w)
	p.Step("a")
	p.Done("b")
	require.Equal(t, 2, int(w))
}

func TestZeroReporterIsSilent(t *testing.T) {
	var p progress.Reporter
	require.NotPanics(t, func() { p.Done("nobody hears this") })
}

// countingWriter counts writes.
type countingWriter int

func (c *countingWriter) Write(b []byte) (int, error) { *c++; return len(b), nil }

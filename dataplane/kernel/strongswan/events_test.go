//go:build linux

package strongswan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/strongswan/govici/vici"
)

func updown(t *testing.T, up bool, conn, child string) vici.Event {
	of := func(k string, v any) *vici.Message {
		m, err := section(map[string]any{k: v})
		require.NoError(t, err)
		return m
	}
	m := of(conn, of("child-sas", of(child, of("name", child))))
	if up {
		require.NoError(t, m.Set("up", "yes"))
	}
	return vici.Event{Name: "child-updown", Message: m}
}

// The negotiator looks soon after a tunnel that this end begins has ended, and not for other
// events. Hundreds that end one after another do not keep it busy.
func TestNegotiatorHears(t *testing.T) {
	for name, test := range map[string]struct {
		up          bool
		conn, child string
		looks       bool
	}{
		"the end of a tunnel":                         {false, "to-gw2", "first-1", true},
		"the end of a tunnel, which both may begin":   {false, "to-gw2", "second-1", true},
		"the end of a tunnel, which the other begins": {false, "to-gw2", "never-1", false},
		"the end of a connection":                     {false, "hub@1", "start:a", true},
		"the end of an edge":                          {false, "edge@1", "add:a", false},
		"a connection that packets begin":             {false, "hub@1", "traffic:a", false},
		"the beginning":                               {true, "hub@1", "start:a", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := &negotiator{stop: make(chan struct{}), fell: make(chan struct{}, 1)}
			n.heard(updown(t, test.up, test.conn, test.child))
			n.heard(updown(t, test.up, test.conn, test.child)) // none is waited for
			require.Equal(t, test.looks, len(n.fell) == 1)
			if !test.looks {
				return
			}
			begun := time.Now()
			require.True(t, n.await(begun, time.Hour))
			require.GreaterOrEqual(t, time.Since(begun), lookBusy)
			close(n.stop)
			require.False(t, n.await(begun, time.Hour))
		})
	}
}

// A look that is near is not put off.
func TestNegotiatorHearsBusy(t *testing.T) {
	n := &negotiator{fell: make(chan struct{}, 1)}
	n.fell <- struct{}{}
	done := make(chan bool)
	go func() { done <- n.await(time.Now().Add(time.Hour), time.Millisecond) }()
	select {
	case ok := <-done:
		require.True(t, ok)
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

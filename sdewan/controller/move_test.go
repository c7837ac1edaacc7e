package controller

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/internal/secret"
	"subctl/sdewan/cnf/server"
	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
	"subctl/sdewan/rest/openwrttest"
)

// own is a CNF of ours, with all states that it has had since the last look.
type own struct {
	store *server.Store
	box   *box

	mu     sync.Mutex
	states [][]string // names of rules of the firewall
}

// newOwn returns a CNF. Requests pass through a filter before.
func newOwn(t *testing.T, filter func(*http.Request)) *own {
	t.Helper()
	store, err := server.OpenStore("")
	require.NoError(t, err)
	o := &own{store: store}
	s := server.New(server.Options{
		Store:    store,
		Password: func() (string, error) { return password, nil },
		Changed:  o.look,
		Ready:    func() bool { return true },
		Log:      slog.New(slog.DiscardHandler),
		Status:   func(context.Context, string) (any, error) { return map[string]any{"applied": true}, nil },
	})
	authority := openwrttest.NewAuthority(t)
	address, _ := openwrttest.Serve(
		t,
		"127.0.0.1:0",
		authority.Certificate(t, "box"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			filter(r)
			s.Handler().ServeHTTP(w, r)
		}),
	)
	c, err := restclient.New(
		restclient.Options{Address: address, Name: "box", CA: authority.PEM, Password: secret.Bytes(password)})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	o.box = &box{t, nil, newMemory(), c}
	return o
}

// look records the state. The server calls it after each change, and before it answers.
func (o *own) look() {
	var names []string
	for _, r := range o.store.Config().Firewall {
		names = append(names, r.Name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.states = append(o.states, names)
}

// rules returns the desired state with rules of the firewall.
func firewallRules(names ...string) []desire {
	var objects []rest.Object
	for _, n := range names {
		objects = append(objects, &rest.FirewallRule{Name: n, SrcIP: "192.0.2.1", Target: "REJECT"})
	}
	return want(objects...)
}

// A rule that moves is in effect all the time: no state of our CNF lacks it.
func TestMoveLeavesNoGap(t *testing.T) {
	o := newOwn(t, func(*http.Request) {})
	o.box.sync(firewallRules("b", "d", "a", "c"))
	o.states = nil
	all := []string{"a", "b", "c", "d"}
	require.Empty(t, o.box.sync(firewallRules(all...)).refused)
	require.Greater(t, len(o.states), 2)
	for _, state := range o.states {
		require.ElementsMatch(t, all, state)
	}
	require.Equal(t, all, o.states[len(o.states)-1])
	// So it is for a controller that has just started, and knows nothing of the CNF.
	o.box.memory = newMemory()
	o.states = nil
	slices.Reverse(all)
	require.Empty(t, o.box.sync(firewallRules(all...)).refused)
	for _, state := range o.states {
		require.ElementsMatch(t, all, state)
	}
	require.Equal(t, all, o.states[len(o.states)-1])
}

// A CNF of ours that is older than the controller does not know how to move a rule. Its order is
// right in the end all the same.
func TestMoveOnOlderCNF(t *testing.T) {
	o := newOwn(t, func(r *http.Request) { r.Header.Del(rest.PlaceHeader) })
	o.box.sync(firewallRules("b", "d", "a", "c"))
	require.Empty(t, o.box.sync(firewallRules("a", "b", "c", "d")).refused)
	require.Equal(t, []string{"a", "b", "c", "d"}, o.states[len(o.states)-1])
}

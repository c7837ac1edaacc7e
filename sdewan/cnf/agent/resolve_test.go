package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// dns is a resolver in a bubble, whose names take a while.
type dns struct {
	mu        sync.Mutex
	addresses map[string][]string
	asked     []string // since the last call of questions
}

// dead is the address of a name whose server does not answer.
const dead = "dead"

func (d *dns) lookup(ctx context.Context, name string) (out []netip.Addr, err error) {
	d.mu.Lock()
	d.asked = append(d.asked, name)
	found := d.addresses[name]
	d.mu.Unlock()
	if slices.Contains(found, dead) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	time.Sleep(10 * time.Millisecond)
	for _, a := range found {
		out = append(out, netip.MustParseAddr(a))
	}
	if len(out) == 0 {
		err = errors.New("no such host")
	}
	return out, err
}

func (d *dns) set(name string, addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addresses[name] = addresses
}

// questions returns the names that were looked up since it was called last, sorted.
func (d *dns) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Sorted(slices.Values(d.asked))
	d.asked = nil
	return out
}

// resolving is an agent that resolves the names of Services.
type resolving struct {
	*Agent
	dns
	services atomic.Pointer[[]rest.Service]
}

// newResolving starts an agent without Services. Its resolver ends with the bubble.
func newResolving(t *testing.T) *resolving {
	r := &resolving{dns: dns{addresses: map[string][]string{}}}
	r.serve()
	r.Agent = New(
		Options{Config: func() rest.Config { return rest.Config{Services: *r.services.Load()} }, Lookup: r.lookup})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.resolve(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return r
}

func (r *resolving) serve(names ...string) {
	services := []rest.Service{}
	for i, n := range names {
		services = append(services, rest.Service{Name: fmt.Sprint("s", i), FullName: n, Port: "80", DPort: "80"})
	}
	r.services.Store(&services)
}

// known requires that the plan is made with these addresses, NAME=ADDRESS, and whether a new plan
// was asked for.
func (r *resolving) known(t *testing.T, changed bool, want ...string) {
	t.Helper()
	r.Agent.mu.Lock()
	got := []string{}
	for name, ip := range r.resolved {
		got = append(got, name+"="+ip.String())
	}
	r.Agent.mu.Unlock()
	require.ElementsMatch(t, want, got)
	require.Equal(t, changed, len(r.wake) == 1)
	if changed {
		<-r.wake
	}
}

// Which address a name has, and which texts are no names at all.
func TestResolveAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolving(t)
		r.set("several", "10.96.0.9", "10.96.0.10", "10.96.0.2")
		r.set("both", "2001:db8::1", "::ffff:10.96.0.7", "10.96.0.8")
		r.set("six", "2001:db8::1")
		r.serve("several", "both", "six", "10.96.0.1", "2001:db8::1", "", "-x", "a b", "$(reboot)", "none", "several")
		time.Sleep(soon + time.Second)
		require.Equal(t, []string{"both", "none", "several", "six"}, r.questions(), "each name once")
		r.known(t, true, "several=10.96.0.2", "both=10.96.0.7", "10.96.0.1=10.96.0.1")
	})
}

// A name without an address is looked up again soon, and one with an address after a while; if that
// fails, the address stays.
func TestResolveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolving(t)
		r.set("web", "10.96.0.1")
		r.serve("web", "later")
		time.Sleep(soon + time.Second)
		r.known(t, true, "web=10.96.0.1")
		require.Equal(t, []string{"later", "web"}, r.questions())
		time.Sleep(soon)
		require.Equal(t, []string{"later"}, r.questions())
		r.known(t, false, "web=10.96.0.1")
		r.set("later", "10.96.0.2")
		time.Sleep(soon)
		r.known(t, true, "web=10.96.0.1", "later=10.96.0.2")

		r.set("web", "10.96.0.3")
		r.questions()
		time.Sleep(resolve - 4*soon)
		require.Empty(t, r.questions())
		time.Sleep(6 * soon)
		require.Equal(t, []string{"later", "web"}, r.questions())
		r.known(t, true, "web=10.96.0.3", "later=10.96.0.2")

		r.set("web")
		r.set("later", "2001:db8::1")
		time.Sleep(resolve + 2*soon)
		require.Equal(t, []string{"later", "web"}, r.questions())
		r.known(t, false, "web=10.96.0.3", "later=10.96.0.2")
	})
}

// The address of a Service that was deleted is forgotten: when it is back, its name is looked up.
func TestResolveForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolving(t)
		r.set("web", "10.96.0.1")
		r.set("other", "10.96.0.2")
		r.serve("web", "other")
		time.Sleep(soon + time.Second)
		r.known(t, true, "web=10.96.0.1", "other=10.96.0.2")
		r.serve("other")
		time.Sleep(soon)
		r.known(t, true, "other=10.96.0.2")
		r.questions()
		r.set("web", "10.96.0.5")
		r.serve("web", "other")
		time.Sleep(soon)
		require.Equal(t, []string{"web"}, r.questions())
		r.known(t, true, "web=10.96.0.5", "other=10.96.0.2")
	})
}

// Servers that do not answer delay other names by the time limit of one look-up, however many they
// are.
func TestResolveDeadServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResolving(t)
		names := []string{}
		for i := range lookups - 1 {
			names = append(names, fmt.Sprint("dead-", i))
			r.set(names[i], dead)
		}
		r.set("web", "10.96.0.1")
		r.serve(append(names, "web")...)
		time.Sleep(soon + patience + time.Second)
		r.known(t, true, "web=10.96.0.1")
	})
}

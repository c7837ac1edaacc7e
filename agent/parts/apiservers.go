package parts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/alarm"
	"subctl/internal/prefix"
	"subctl/internal/proxy"
	"subctl/internal/wake"
)

// Where Kubernetes lists the addresses of the API servers of a cluster.
const apiServerNamespace, apiServerSlice = "default", "kubernetes"

// An address that is no longer found counts for a while: a name may have many addresses, of
// which each answer has a few. maxServerAddresses bounds them.
const (
	addressesKept      = 15 * time.Minute
	maxServerAddresses = 128
)

// apiServers adds the addresses of the API servers of this cluster and of the broker to what
// the node needs. Names are looked up once a minute. No plan is made before the first
// attempt. If an attempt fails, the addresses that are known count.
type apiServers struct {
	lookUp  func(ctx context.Context, network, host string) ([]netip.Addr, error)
	listed  func(context.Context) ([]netip.Addr, error) // the addresses that Kubernetes lists
	own     string                                      // address of this cluster's API server
	proxy   proxy.Settings                              // of the environment
	log     *slog.Logger
	trigger func()
	wake    wake.Signal

	mu     sync.Mutex
	broker contact
	asked  bool // whether there was an attempt for broker
	seen   map[serverAddress]time.Time
	failed alarm.Alarm
}

// contact is the host to which the gateway connects for the broker: the broker's, or a proxy's.
type contact struct{ host, reason string }

// serverAddress is an address and whose it is.
type serverAddress struct {
	ip     netip.Addr
	reason string
}

const (
	ownServer    = "an API server of this cluster"
	brokerServer = "the API server of the broker"
	proxyServer  = "the proxy to the broker"
)

func newAPIServers(o Options) (*apiServers, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	a := &apiServers{
		lookUp:  net.DefaultResolver.LookupNetIP,
		log:     o.Log,
		trigger: o.Trigger,
		wake:    wake.NewSignal(),
		seen:    map[serverAddress]time.Time{},
		own:     o.Config.Host,
		proxy:   o.Proxy,
	}
	a.listed = func(ctx context.Context) ([]netip.Addr, error) {
		slice, err := c.DiscoveryV1().EndpointSlices(apiServerNamespace).Get(ctx, apiServerSlice, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading EndpointSlice %s/%s: %w", apiServerNamespace, apiServerSlice, err)
		}
		var out []netip.Addr
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil {
					out = append(out, ip)
				}
			}
		}
		return out, nil
	}
	return a, nil
}

// Observe implements Observer.
func (a *apiServers) Observe(s *role.Snapshot) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at := range a.seen {
		members.NeverRoute(s, prefix.Host(at.ip), at.reason)
	}
	var broker contact
	for _, sub := range role.List[*v1alpha1.Submariner](*s) {
		broker = contact{sub.Spec.BrokerHost(), brokerServer}
		if via, _ := brokerProxy(*s, sub.Spec, a.proxy, a.own); via != nil {
			broker = contact{via.Hostname(), proxyServer} // which looks the broker's name up
		}
	}
	if a.broker != broker {
		a.broker = broker
		a.asked = false
		a.wake.Send()
	}
	if !a.asked {
		return ErrTooEarly
	}
	return nil
}

// Start looks the addresses up until ctx is done.
func (a *apiServers) Start(ctx context.Context) error {
	a.refresh(ctx, time.Now())
	wake.Every(ctx, lookUpEvery, a.wake, func() { a.refresh(ctx, time.Now()) })
	return nil
}

// refresh looks all addresses up once, at the same time.
func (a *apiServers) refresh(ctx context.Context, now time.Time) {
	a.mu.Lock()
	broker := a.broker
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	sources := []func() ([]netip.Addr, error){
		func() ([]netip.Addr, error) { return a.listed(ctx) },
		func() ([]netip.Addr, error) { return a.addresses(ctx, v1alpha1.HostOf(a.own)) },
		func() ([]netip.Addr, error) { return a.addresses(ctx, broker.host) },
	}
	found := make([][]netip.Addr, len(sources))
	failures := make([]error, len(sources))
	var all sync.WaitGroup
	for i, read := range sources {
		all.Go(func() { found[i], failures[i] = read() })
	}
	all.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	before := slices.Collect(maps.Keys(a.seen))
	for i, reason := range []string{ownServer, ownServer, broker.reason} {
		for _, ip := range found[i] {
			if ip = ip.Unmap(); ip.Is4() && !ip.IsLoopback() {
				a.seen[serverAddress{ip, reason}] = now
			}
		}
	}
	a.forget(now)
	a.report(errors.Join(failures...))
	first := !a.asked && a.broker == broker
	a.asked = a.asked || first
	if first || len(before) != len(a.seen) ||
		slices.ContainsFunc(before, func(at serverAddress) bool { _, is := a.seen[at]; return !is }) {
		a.trigger()
	}
}

// addresses returns the addresses of a host, which may be an address.
func (a *apiServers) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == "" {
		return nil, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ips, err := a.lookUp(ctx, "ip", host) // also of a name that has IPv6 addresses only
	if err != nil {
		return nil, fmt.Errorf("looking up API server %s: %w", host, err)
	}
	return ips, nil
}

// forget removes addresses that were not found for a while, and the oldest if there are too
// many. While nothing is found at all, no address is removed.
func (a *apiServers) forget(now time.Time) {
	newest := map[string]time.Time{}
	for at, seen := range a.seen {
		if newest[at.reason].Before(seen) {
			newest[at.reason] = seen
		}
	}
	maps.DeleteFunc(a.seen, func(at serverAddress, seen time.Time) bool {
		return newest[at.reason].Sub(seen) >= addressesKept
	})
	oldest := slices.SortedFunc(maps.Keys(a.seen), func(x, y serverAddress) int {
		return cmp.Or(a.seen[x].Compare(a.seen[y]), x.ip.Compare(y.ip), cmp.Compare(x.reason, y.reason))
	})
	for _, at := range oldest[:max(0, len(oldest)-maxServerAddresses)] {
		delete(a.seen, at)
	}
}

// report logs a failure.
func (a *apiServers) report(err error) {
	a.failed.Report(a.log, slog.LevelWarn,
		"finding the API servers, so that nothing routes their addresses elsewhere; the addresses that are known count",
		err)
}

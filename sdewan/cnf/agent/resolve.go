package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"time"
)

// hostname matches the names that are looked up.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// patience is the time limit of one lookup, soon the time until names without an address are looked
// up again, and lookups the maximum number of lookups at once.
const (
	patience = 5 * time.Second
	soon     = 2 * time.Second
	lookups  = 16
)

// resolve looks up the names of Services until the context ends. A name that cannot be looked up
// keeps the address that it had.
func (a *Agent) resolve(ctx context.Context) {
	known := map[string]netip.Addr{}
	when := map[string]time.Time{}
	ticker := time.NewTicker(soon)
	defer ticker.Stop()
	for {
		now := map[string]netip.Addr{}
		due := []string{}
		for _, s := range a.Config().Services {
			ip, has := known[s.FullName]
			if has {
				now[s.FullName] = ip
			}
			if (!has || time.Since(when[s.FullName]) >= resolve) && !slices.Contains(due, s.FullName) {
				due = append(due, s.FullName)
			}
		}
		for i, ip := range a.addresses(ctx, due) {
			if when[due[i]] = time.Now(); ip.IsValid() {
				now[due[i]] = ip
			}
		}
		maps.DeleteFunc(when, func(name string, _ time.Time) bool { return !now[name].IsValid() })
		if !maps.Equal(now, known) {
			known = now
			a.mu.Lock()
			a.resolved = maps.Clone(now)
			a.mu.Unlock()
			a.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// addresses returns the address of each name, or the zero Addr. It looks up several at once: a
// server that does not answer delays the others little.
func (a *Agent) addresses(ctx context.Context, names []string) []netip.Addr {
	out := make([]netip.Addr, len(names))
	slots := make(chan struct{}, lookups)
	var all sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			out[i] = a.address(ctx, name)
			<-slots
		})
	}
	all.Wait()
	return out
}

// address returns the lowest IPv4 address of a name, so that the result does not depend on the
// order in which DNS has several; or the zero Addr.
func (a *Agent) address(ctx context.Context, name string) (lowest netip.Addr) {
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(name); err == nil {
		ips = append(ips, ip)
	} else if hostname.MatchString(name) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if ips, err = a.Lookup(ctx, name); err != nil {
			return netip.Addr{}
		}
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is4() && (!lowest.IsValid() || ip.Less(lowest)) {
			lowest = ip
		}
	}
	return lowest
}

func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
}

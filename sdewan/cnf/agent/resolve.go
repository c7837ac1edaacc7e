package agent

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"subctl/sdewan/rest"
)

// hostname matches the names that are looked up.
var hostname = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// patience is how long one look-up may take, and soon when names without an address are looked up again.
const (
	patience = 5 * time.Second
	soon     = 2 * time.Second
)

// resolve looks up the names of Services until the context ends. A name that cannot be looked up keeps the address that it had.
func (a *Agent) resolve(ctx context.Context) {
	known, when := map[string]netip.Addr{}, map[string]time.Time{}
	ticker := time.NewTicker(soon)
	defer ticker.Stop()
	for {
		now := map[string]netip.Addr{}
		for _, s := range a.Config().Services {
			name := s.FullName
			ip, has := known[name]
			if age := time.Since(when[name]); !has && age >= soon || age >= resolve {
				when[name] = time.Now()
				if found, ok := a.address(ctx, name); ok {
					ip, has = found, true
				}
			}
			if has {
				now[name] = ip
			}
		}
		maps.DeleteFunc(when, func(name string, _ time.Time) bool {
			return !slices.ContainsFunc(a.Config().Services, func(s rest.Service) bool { return s.FullName == name })
		})
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

// address returns the lowest address of a name, so that the result does not depend on the order in which DNS has several.
func (a *Agent) address(ctx context.Context, name string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip, ip.Is4()
	}
	if !hostname.MatchString(name) {
		return netip.Addr{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ips, err := a.Lookup(ctx, name)
	if err != nil || len(ips) == 0 {
		return netip.Addr{}, false
	}
	ip := slices.MinFunc(ips, netip.Addr.Compare).Unmap()
	return ip, ip.Is4()
}

func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
}

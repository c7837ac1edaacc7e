package agent

import (
	"net/netip"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/cnf"
)

// look returns the World of a plan, and remembers it.
func (a *Agent) look(n dataplane.Network) cnf.World {
	var w cnf.World
	gateways := map[string]netip.Addr{}
	up := map[string]bool{}
	for _, d := range n.Devices {
		up[d.Name] = d.Up
		for _, p := range d.Addrs {
			if !d.Loopback && d.Name != dataplane.CNFStandInDevice && p.Addr().Is4() {
				w.Addrs = append(w.Addrs, cnf.Addr{Device: d.Name, Prefix: p})
			}
		}
	}
	best := -1
	for _, r := range n.Routes {
		if r.Table == cnf.MainTable && r.Metric == 0 && r.Protocol != int(dataplane.CNFOwner.Protocol) {
			w.Taken = append(w.Taken, r.Dst)
		}
		if r.Table != cnf.MainTable || r.Type != "unicast" || r.Protocol == int(dataplane.CNFOwner.Protocol) {
			continue
		}
		if r.Dst.Bits() > 0 {
			w.Routes = append(w.Routes, cnf.MainRoute{Dst: r.Dst, Via: r.Via, Device: r.Dev, Src: r.Src})
			continue
		}
		if _, has := gateways[r.Dev]; !has && r.Via.IsValid() {
			gateways[r.Dev] = r.Via
		}
		if best < 0 || r.Metric < best {
			best = r.Metric
			w.Default = r.Dev
		}
	}
	w.API = a.served(w)
	now := time.Now()
	w.Now = now
	for i, at := range a.Attachments {
		f := cnf.Interface{Name: at.Device, Device: at.Device, Up: up[at.Device]}
		for _, g := range []netip.Addr{a.Uplinks[at.Network].Gateway, at.Gateway, gateways[at.Device]} {
			if !f.Gateway.IsValid() && g.Is4() {
				f.Gateway = g
			}
		}
		f.Online = f.Up
		if t := a.trackers[i]; t != nil {
			f.Online = t.link(f.Up) && f.Up
			f.Quality = t.quality()
		}
		w.Interfaces = append(w.Interfaces, f)
		a.mu.Lock()
		if _, was := a.since[f.Name]; was != f.Up {
			if delete(a.since, f.Name); f.Up {
				a.since[f.Name] = now
			}
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Resolved = a.resolved
	w.IPsec = n.IPsec
	a.world = w
	a.network = n
	return w
}

// served returns the addresses at which the API is served.
func (a *Agent) served(w cnf.World) (out []netip.AddrPort) {
	for _, at := range a.API {
		if !at.Addr().IsUnspecified() {
			out = append(out, at)
			continue
		}
		for _, own := range w.Addrs {
			if own.Device == w.Default {
				out = append(out, netip.AddrPortFrom(own.Prefix.Addr(), at.Port()))
			}
		}
	}
	return out
}

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/cnf"
	"subctl/sdewan/rest"
)

// Devices returns the devices to which objects of the REST API may refer; nil until they are known.
func (a *Agent) Devices() *rest.Devices {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.network.Devices) == 0 {
		return nil
	}
	d := &rest.Devices{Default: a.world.Default != "", Networks: []string{}}
	for _, at := range a.Attachments {
		d.Networks = append(d.Networks, at.Device)
	}
	for _, n := range a.network.Devices {
		d.Names = append(d.Names, n.Name)
		for _, p := range n.Addrs {
			d.Addresses = append(d.Addresses, p.Addr())
		}
	}
	return d
}

// Status returns the report of a module of the REST API, in the format of CNFs on OpenWrt. The
// modules "effect" and "neighbour" exist only here.
func (a *Agent) Status(ctx context.Context, module string) (any, error) {
	a.mu.Lock()
	network := a.network
	world := a.world
	a.mu.Unlock()
	switch module {
	case "interface":
		return interfaces(network), nil
	case "route":
		return routes(network), nil
	case "rule":
		return rules(network), nil
	case "conntrack":
		all, err := a.Kernel.Connections(rest.MaxEntries)
		return connections(all), err
	case "neighbour":
		all, err := a.Kernel.Neighbours(rest.MaxEntries)
		return neighbours(all), err
	case "wan":
		return a.wan(world), nil
	case "interface_status":
		return map[string]any{
			"interfaces": a.uplinks(world),
			"connected":  map[string]any{"ipv4": connected(network)},
		}, nil
	case "ipsec":
		return a.ipsec()
	case "effect":
		a.settle(ctx)
		return a.effect(), nil
	}
	return nil, fmt.Errorf("no such module: %s", module)
}

type interfaceStatus struct {
	Name     string   `json:"name"`
	IP       []string `json:"ip_address"`
	IP6      []string `json:"ip6_address"`
	MAC      string   `json:"mac_address"`
	Received string   `json:"received_packets"`
	Sent     string   `json:"send_packets"`
	Status   string   `json:"status"`
}

func interfaces(n dataplane.Network) []interfaceStatus {
	out := []interfaceStatus{}
	for _, d := range n.Devices {
		if d.Loopback {
			continue
		}
		i := interfaceStatus{
			Name:     d.Name,
			IP:       []string{},
			IP6:      []string{},
			MAC:      d.MAC,
			Status:   "DOWN",
			Received: strconv.FormatUint(d.Received, 10),
			Sent:     strconv.FormatUint(d.Sent, 10),
		}
		if d.Up {
			i.Status = "UP"
		}
		for _, p := range d.Addrs {
			if p.Addr().Is4() {
				i.IP = append(i.IP, p.Addr().String())
			} else {
				i.IP6 = append(i.IP6, p.Addr().String())
			}
		}
		out = append(out, i)
	}
	return out
}

type routeStatus struct {
	Destination string `json:"destination"`
	Gateway     string `json:"gateway"`
	Device      string `json:"device"`
	Scope       string `json:"scope"`
	Protocol    string `json:"proto"`
	Metric      string `json:"metric"`
	Src         string `json:"src"`
}

type routeTable struct {
	Item []routeStatus `json:"item"`
}

func routes(n dataplane.Network) map[string]routeTable {
	out := map[string]routeTable{}
	for _, r := range n.Routes {
		dst := "default"
		if r.Dst.Bits() > 0 {
			dst = r.Dst.String()
		}
		t := out[cnf.TableName(r.Table)]
		t.Item = append(
			t.Item,
			routeStatus{
				Destination: dst,
				Gateway:     text(r.Via),
				Device:      r.Dev,
				Scope:       r.Scope,
				Protocol:    strconv.Itoa(r.Protocol),
				Metric:      strconv.Itoa(r.Metric),
				Src:         text(r.Src),
			},
		)
		out[cnf.TableName(r.Table)] = t
	}
	return out
}

func text(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.String()
}

type ruleStatus struct {
	Priority string `json:"prio"`
	Src      string `json:"src"`
	Dst      string `json:"dst"`
	Mark     string `json:"fwmark"`
	Table    string `json:"table"`
	Not      string `json:"not"`
}

func rules(n dataplane.Network) []ruleStatus {
	out := []ruleStatus{}
	for _, r := range n.Rules {
		s := ruleStatus{
			Priority: strconv.Itoa(r.Priority),
			Src:      "all",
			Table:    cnf.TableName(r.Table),
			Not:      strconv.FormatBool(r.Not),
		}
		if r.Src.IsValid() {
			s.Src = r.Src.String()
		}
		if r.Dst.IsValid() {
			s.Dst = r.Dst.String()
		}
		if r.Mark != 0 || r.Mask != 0 {
			s.Mark = fmt.Sprintf("%#x/%#x", r.Mark, r.Mask)
		}
		if r.Table == 0 {
			s.Table = ""
		}
		out = append(out, s)
	}
	return out
}

type tuple struct {
	Src     string `json:"src"`
	Dst     string `json:"dst"`
	Packets uint64 `json:"packets,omitempty"`
	Bytes   uint64 `json:"bytes,omitempty"`
}

type connection struct {
	Protocol string `json:"protocol"`
	State    string `json:"state,omitempty"` // of TCP
	Request  tuple  `json:"request"`
	Response tuple  `json:"response"`
}

func connections(all []dataplane.Connection) []connection {
	out := []connection{}
	end := func(a netip.AddrPort) string {
		if a.Port() == 0 {
			return a.Addr().String()
		}
		return a.String()
	}
	direction := func(t dataplane.Tuple) tuple { return tuple{end(t.Src), end(t.Dst), t.Packets, t.Bytes} }
	for _, c := range all {
		out = append(out, connection{c.Protocol, c.State, direction(c.Request), direction(c.Response)})
	}
	return out
}

type neighbour struct {
	IP     string `json:"ip"`
	MAC    string `json:"mac"` // "" while the address is not resolved
	Device string `json:"device"`
	State  string `json:"state"`
}

func neighbours(all []dataplane.NetNeighbour) []neighbour {
	out := []neighbour{}
	for _, n := range all {
		out = append(out, neighbour{n.IP.String(), n.MAC, n.Dev, n.State})
	}
	return out
}

// connected returns the networks of the main table.
func connected(n dataplane.Network) []string {
	out := []string{}
	for _, r := range n.Routes {
		if r.Table == cnf.MainTable && r.Dst.Bits() > 0 && !slices.Contains(out, r.Dst.String()) {
			out = append(out, r.Dst.String())
		}
	}
	return out
}

// wan is the status of uplinks and policies.
func (a *Agent) wan(w cnf.World) map[string]any {
	a.mu.Lock()
	nets := connected(a.network)
	a.mu.Unlock()
	return map[string]any{
		"interfaces": a.uplinks(w),
		"connected":  map[string]any{"ipv4": nets, "ipv6": []string{}},
		"policies":   map[string]any{"ipv4": cnf.Shares(a.Config(), w), "ipv6": map[string]any{}},
	}
}

type uplinkStatus struct {
	Age     int64         `json:"age"` // seconds in this state
	Online  int64         `json:"online"`
	Offline int64         `json:"offline"`
	Uptime  int64         `json:"uptime"` // of the device
	Score   int           `json:"score"`
	Lost    int           `json:"lost"`
	Turn    int           `json:"turn"`
	Status  string        `json:"status"`
	Enabled bool          `json:"enabled"`
	Running bool          `json:"running"`
	Up      bool          `json:"up"`
	Track   []trackStatus `json:"track_ip"`

	// Quality is missing if nothing was measured.
	Quality *qualityStatus `json:"quality,omitempty"`
}

// qualityStatus is a cnf.Quality, which OpenWrt does not have.
type qualityStatus struct {
	Loss    float64 `json:"loss"`    // percent
	Latency float64 `json:"latency"` // milliseconds
	Jitter  float64 `json:"jitter"`  // milliseconds
	// Over lists the policies that avoid the uplink, as it exceeds their limits.
	Over []string `json:"over,omitempty"`
}

type trackStatus struct {
	IP      string  `json:"ip"`
	Status  string  `json:"status"`
	Latency float64 `json:"latency"` // milliseconds
	Loss    float64 `json:"packetloss"`
}

// uplinks returns the state of each network that is an uplink.
func (a *Agent) uplinks(w cnf.World) map[string]uplinkStatus {
	out := map[string]uplinkStatus{}
	now := time.Now()
	for i, f := range w.Interfaces {
		if !f.Gateway.IsValid() {
			continue
		}
		s := uplinkStatus{Enabled: true, Up: f.Up, Status: "offline", Track: []trackStatus{}}
		a.mu.Lock()
		since, up := a.since[f.Name]
		a.mu.Unlock()
		if up {
			s.Uptime = int64(now.Sub(since).Seconds())
		}
		s.Age = s.Uptime
		if f.Online {
			s.Status = "online"
		}
		if t := a.trackers[i]; t != nil {
			t.status(&s, now)
			s.Quality = a.qualityStatus(f)
		}
		if s.Status == "online" {
			s.Online = s.Age
		} else {
			s.Offline = s.Age
		}
		out[f.Name] = s
	}
	return out
}

// status adds what pings found out.
func (t *tracker) status(s *uplinkStatus, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Running = t.up
	s.Score = t.score
	s.Lost = t.lost
	s.Turn = t.turn
	s.Age = int64(now.Sub(t.since).Seconds())
	for _, h := range t.hosts {
		one := trackStatus{
			IP:      h.ip.String(),
			Status:  "down",
			Latency: float64(h.latency.Microseconds()) / 1000,
			Loss:    h.lost,
		}
		if h.up {
			one.Status = "up"
		}
		s.Track = append(s.Track, one)
	}
	slices.SortFunc(s.Track, func(a, b trackStatus) int { return strings.Compare(a.IP, b.IP) })
}

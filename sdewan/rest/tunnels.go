package rest

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Tunnels is what the module "ipsec" reports, as far as it is shown. CNFs on OpenWrt report neither
// remotes nor which tunnels wait.
type Tunnels struct {
	// Init is "fail" if a tunnel that the CNF is to begin is neither up nor connecting.
	Init    string         `json:"InitConnection,omitempty"`
	Details []Tunnel       `json:"details"`
	Remotes []TunnelRemote `json:"remotes"`
	// Counts is nil, unless the lists have been shortened: then it has the numbers from before.
	Counts *TunnelCounts `json:"counts,omitempty"`
}

// Tunnel is a connection of a remote.
type Tunnel struct {
	Name       string          `json:"connection"` // REMOTE-CONNECTION
	Up         json.RawMessage `json:"up,omitempty"`
	Connecting json.RawMessage `json:"connecting,omitempty"`
	Waiting    bool            `json:"waiting,omitempty"`
}

// TunnelRemote is a remote, or all of them that an object with the gateway "%any" is about.
type TunnelRemote struct {
	Name string `json:"name"`
	// of IKE, as strongSwan calls it: ESTABLISHED; "" if there is no negotiation
	State       string        `json:"state,omitempty"`
	Virtual     []string      `json:"virtual_ips,omitempty"`
	Leases      []string      `json:"leases,omitempty"`
	Message     string        `json:"message,omitempty"`
	Connections []TunnelState `json:"connections,omitempty"`
}

// TunnelState tells whether a connection of a TunnelRemote is up.
type TunnelState struct {
	Name string `json:"name,omitempty"`
	Up   bool   `json:"up"`
}

// TunnelCounts are numbers of tunnels, by State, and of remotes, of those whose IKE is established,
// and of virtual addresses that remotes have.
type TunnelCounts struct {
	Up          int `json:"up"`
	Connecting  int `json:"connecting"`
	Waiting     int `json:"waiting"`
	Down        int `json:"down"`
	Remotes     int `json:"remotes"`
	Established int `json:"established"`
	Leases      int `json:"leases"`
}

// Tunnels returns the number of tunnels.
func (c TunnelCounts) Tunnels() int { return c.Up + c.Connecting + c.Waiting + c.Down }

// State returns up, connecting, waiting (for the other end, or for traffic) or down.
func (t Tunnel) State() string {
	switch {
	case counted(t.Up):
		return "up"
	case counted(t.Connecting):
		return "connecting"
	case t.Waiting:
		return "waiting"
	}
	return "down"
}

// counted reports whether a number, which CNFs also write as text, is more than 0.
func counted(raw json.RawMessage) bool {
	var n json.Number
	if json.Unmarshal(raw, &n) == nil && n != "" && n != "0" {
		return true
	}
	var text string
	return json.Unmarshal(raw, &text) == nil && text != "" && text != "0"
}

// Up reports whether a connection is up.
func (r TunnelRemote) Up() bool {
	return slices.ContainsFunc(r.Connections, func(c TunnelState) bool { return c.Up })
}

// Count returns the numbers: those from before, if the lists have been shortened.
func (t Tunnels) Count() TunnelCounts {
	if t.Counts != nil {
		return *t.Counts
	}
	c := TunnelCounts{Remotes: len(t.Remotes)}
	for _, d := range t.Details {
		switch d.State() {
		case "up":
			c.Up++
		case "connecting":
			c.Connecting++
		case "waiting":
			c.Waiting++
		default:
			c.Down++
		}
	}
	for _, r := range t.Remotes {
		if r.State == established {
			c.Established++
		}
		c.Leases += len(r.Leases)
	}
	return c
}

// established is the State of a TunnelRemote with which IKE has been negotiated.
const established = "ESTABLISHED"

// maxListed is the maximum number of addresses, and of connections, that Shorten keeps of a remote.
const maxListed = 8

// Shorten returns t with the numbers, and with as many entries as take a number of bytes as JSON,
// about: tunnels first that are not up, and remotes whose tunnels are not up and that have a
// message.
func (t Tunnels) Shorten(most int) Tunnels {
	counts := t.Count()
	out := Tunnels{Init: t.Init, Details: []Tunnel{}, Remotes: []TunnelRemote{}, Counts: &counts}
	rank := map[string]int{"waiting": 1, "up": 2}
	details := slices.Clone(t.Details)
	slices.SortStableFunc(details, func(a, b Tunnel) int { return cmp.Compare(rank[a.State()], rank[b.State()]) })
	rest := most / 2
	for _, d := range details {
		if fits(d, &rest) {
			out.Details = append(out.Details, d)
		}
	}
	remotes := slices.Clone(t.Remotes)
	slices.SortStableFunc(remotes, func(a, b TunnelRemote) int { return cmp.Compare(a.rank(), b.rank()) })
	rest += most - most/2
	for _, r := range remotes {
		leases := slices.Sorted(slices.Values(r.Leases)) // they are in the order of negotiations, which says nothing
		connections := slices.Clone(r.Connections)
		// Up stays as it is
		slices.SortStableFunc(connections,
			func(a, b TunnelState) int { return cmp.Compare(number(b.Up), number(a.Up)) })
		r.Leases, r.Virtual, r.Connections = firstFew(leases), firstFew(r.Virtual), firstFew(connections)
		if fits(r, &rest) {
			out.Remotes = append(out.Remotes, r)
		}
	}
	return out
}

// rank is the place of a remote among others.
func (r TunnelRemote) rank() int {
	switch {
	case r.Message != "" && !r.Up():
		return 0
	case r.State != established:
		return 1
	}
	return 2
}

func firstFew[T any](list []T) []T { return list[:min(len(list), maxListed)] }

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fits takes the size of an entry as JSON from rest, if it is not more.
func fits(entry any, rest *int) bool {
	b, err := json.Marshal(entry)
	if err != nil || len(b)+1 > *rest {
		return false
	}
	*rest -= len(b) + 1
	return true
}

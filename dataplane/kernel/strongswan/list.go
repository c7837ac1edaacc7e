//go:build linux

package strongswan

import (
	"fmt"
	"slices"
	"time"

	"github.com/strongswan/govici/vici"
)

// Connection is a tunnel that the daemon has loaded.
type Connection struct {
	Child     string    // the fingerprint of the dataplane.Tunnel
	Children  []string  // all of them; several only of a dataplane.IKERemote
	Transport bool      // whether it is in transport mode
	IDs       [2]string // the IKE identities of the local and the remote end
	LocalTS   []string  // the networks at this end, of all children
	// Certificates specifies that this end proves its identity by a certificate, and not by a
	// pre-shared key.
	Certificates bool
}

// Connections returns the loaded tunnels by name.
func (i *Instance) Connections() (conns map[string]Connection, err error) {
	err = i.talk(func(s *vici.Session) (err error) {
		conns, err = connections(s)
		return err
	})
	return conns, err
}

// SAs returns the IKE security associations by the name of their tunnel.
func (i *Instance) SAs() (sas map[string][]SA, err error) {
	err = i.talk(func(s *vici.Session) (err error) {
		sas, err = associations(s)
		return err
	})
	return sas, err
}

// Tunnels returns what Connections and SAs return, in one session.
func (i *Instance) Tunnels() (conns map[string]Connection, sas map[string][]SA, err error) {
	err = i.talk(func(s *vici.Session) (err error) {
		if conns, err = connections(s); err == nil {
			sas, err = associations(s)
		}
		return err
	})
	return conns, sas, err
}

func connections(s *vici.Session) (map[string]Connection, error) {
	msgs, err := s.StreamedCommandRequest("list-conns", "list-conn", nil)
	if err != nil {
		return nil, fmt.Errorf("listing connections: %w", err)
	}
	out := map[string]Connection{}
	for _, m := range msgs {
		for _, name := range m.Keys() {
			out[name] = readConnection(sub(m, name))
		}
	}
	return out, nil
}

func readConnection(m *vici.Message) (c Connection) {
	for i, end := range []string{"local-1", "remote-1"} {
		c.IDs[i] = str(sub(m, end), "id")
	}
	c.Certificates = str(sub(m, "local-1"), "class") == "public key"
	children := sub(m, "children")
	for _, c.Child = range children.Keys() {
		c.Transport = str(sub(children, c.Child), "mode") == "TRANSPORT"
		c.Children = append(c.Children, c.Child)
		c.LocalTS = append(c.LocalTS, list(sub(children, c.Child), "local-ts")...)
	}
	return c
}

// SA is an IKE security association, with its children.
type SA struct {
	ID       string // the daemon's own
	SPIs     string // the same at both ends
	State    string // such as "ESTABLISHED"
	Age      time.Duration
	Children []ChildSA
	// Of both ends: addresses, identities, and virtual addresses.
	Local, Remote         string
	LocalID, RemoteID     string
	LocalVIPs, RemoteVIPs []string
}

// ChildSA is a pair of ESP security associations.
type ChildSA struct {
	Name    string // the fingerprint of the dataplane.Tunnel that it was made for
	ReqID   uint32
	Up      bool // whether it carries traffic
	Age     time.Duration
	In, Out uint64 // bytes
	// The traffic selectors of both ends.
	LocalTS, RemoteTS []string
}

// connecting reports whether keys are being negotiated.
func (s SA) connecting() bool { return s.State == "CREATED" || s.State == "CONNECTING" }

// uses reports whether a child of this name carries traffic.
func (s SA) uses(child string) bool {
	return slices.ContainsFunc(s.Children, func(c ChildSA) bool { return c.Up && c.Name == child })
}

// Current reports whether one of a tunnel's security associations carries traffic under
// the tunnel's present settings, of which child is the fingerprint.
func Current(sas []SA, child string) bool {
	return slices.ContainsFunc(sas, func(sa SA) bool { return sa.uses(child) })
}

func associations(s *vici.Session) (map[string][]SA, error) {
	msgs, err := s.StreamedCommandRequest("list-sas", "list-sa", nil)
	if err != nil {
		return nil, fmt.Errorf("listing security associations: %w", err)
	}
	out := map[string][]SA{}
	for _, m := range msgs {
		for _, name := range m.Keys() {
			out[name] = append(out[name], readSA(sub(m, name)))
		}
	}
	return out, nil
}

func readSA(m *vici.Message) SA {
	sa := SA{
		ID:         str(m, "uniqueid"),
		SPIs:       str(m, "initiator-spi") + str(m, "responder-spi"),
		State:      str(m, "state"),
		Age:        time.Duration(num(m, "established")) * time.Second,
		Local:      str(m, "local-host"),
		Remote:     str(m, "remote-host"),
		LocalID:    str(m, "local-id"),
		RemoteID:   str(m, "remote-id"),
		LocalVIPs:  list(m, "local-vips"),
		RemoteVIPs: list(m, "remote-vips"),
	}
	children := sub(m, "child-sas")
	for _, id := range slices.Sorted(slices.Values(children.Keys())) {
		c := sub(children, id)
		state := str(c, "state")
		sa.Children = append(sa.Children, ChildSA{
			Name:     str(c, "name"),
			ReqID:    uint32(num(c, "reqid")),
			Up:       state == "INSTALLED" || state == "REKEYING" || state == "REKEYED",
			Age:      time.Duration(num(c, "install-time")) * time.Second,
			In:       num(c, "bytes-in"),
			Out:      num(c, "bytes-out"),
			LocalTS:  list(c, "local-ts"),
			RemoteTS: list(c, "remote-ts"),
		})
	}
	return sa
}

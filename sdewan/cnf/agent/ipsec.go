package agent

import (
	"slices"
	"time"

	"subctl/dataplane"
)

// ipsecStatus is the status of IPsec: as on OpenWrt, and what else is known.
type ipsecStatus struct {
	// InitConnection is "fail" if a connection that this end begins is neither up nor being
	// negotiated. Upstream's controller then restarts IPsec.
	InitConnection string        `json:"InitConnection"`
	Details        []ipsecDetail `json:"details"`
	Remotes        []ipsecRemote `json:"remotes"` // not on OpenWrt
}

// ipsecDetail has the numbers of a connection's security associations.
type ipsecDetail struct {
	Connecting int    `json:"connecting"`
	Up         int    `json:"up"`
	Connection string `json:"connection"` // REMOTE-CONNECTION
	// it is down, and this end is not to begin it: the other end does, or traffic, or nobody
	Waiting bool `json:"waiting,omitempty"`
}

type ipsecRemote struct {
	Name        string       `json:"name"`
	State       string       `json:"state"` // of IKE
	Local       string       `json:"local,omitempty"`
	Remote      string       `json:"remote,omitempty"`
	LocalID     string       `json:"local_id,omitempty"`
	RemoteID    string       `json:"remote_id,omitempty"`
	Seconds     int          `json:"seconds"` // since IKE is established
	Virtual     []string     `json:"virtual_ips,omitempty"`
	Leases      []string     `json:"leases,omitempty"`
	Message     string       `json:"message,omitempty"`
	Connections []ipsecChild `json:"connections"`
}

type ipsecChild struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`
	Seconds  int      `json:"seconds"` // since the present keys
	In       uint64   `json:"bytes_in"`
	Out      uint64   `json:"bytes_out"`
	LocalTS  []string `json:"local_ts,omitempty"`
	RemoteTS []string `json:"remote_ts,omitempty"`
}

// ipsec returns the status of IPsec.
func (a *Agent) ipsec() (ipsecStatus, error) {
	a.mu.Lock()
	target := a.target
	a.mu.Unlock()
	var states []dataplane.RemoteState
	if r, ok := target.(dataplane.Remoter); ok {
		var err error
		if states, err = r.RemoteStates(); err != nil {
			return ipsecStatus{}, err
		}
	}
	c := a.Config()
	wanted := map[string]bool{}
	for _, r := range c.Remotes {
		for _, conn := range r.Connections {
			if conn.Mode == dataplane.StartNow && !r.Waits() && !slices.Contains(c.Stopped, "ipsec") {
				wanted[r.Name+"-"+conn.Name] = true
			}
		}
	}
	return statusOf(states, wanted), nil
}

// statusOf returns the status of IPsec. wanted are the connections that this end begins.
func statusOf(states []dataplane.RemoteState, wanted map[string]bool) ipsecStatus {
	s := ipsecStatus{InitConnection: "success", Details: []ipsecDetail{}, Remotes: []ipsecRemote{}}
	active := map[string]bool{}
	for _, r := range states {
		one := ipsecRemote{
			Name:        r.Name,
			State:       r.State,
			Local:       r.Local,
			Remote:      r.Remote,
			LocalID:     r.LocalID,
			RemoteID:    r.RemoteID,
			Seconds:     int(r.Age / time.Second),
			Virtual:     r.Virtual,
			Leases:      r.Leases,
			Message:     r.Message,
			Connections: []ipsecChild{},
		}
		for _, c := range r.Children {
			d := ipsecDetail{Connection: r.Name + "-" + c.Name}
			switch {
			case c.Up:
				d.Up = 1
			case c.Connecting:
				d.Connecting = 1
			default:
				d.Waiting = !wanted[d.Connection]
			}
			active[d.Connection] = d.Up+d.Connecting > 0
			s.Details = append(s.Details, d)
			one.Connections = append(one.Connections,
				ipsecChild{c.Name, c.Up, int(c.Age / time.Second), c.In, c.Out, c.LocalTS, c.RemoteTS})
		}
		s.Remotes = append(s.Remotes, one)
	}
	for name := range wanted {
		if !active[name] {
			s.InitConnection = "fail"
		}
	}
	return s
}

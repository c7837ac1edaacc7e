//go:build linux

package strongswan

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
)

// A dataplane.IKERemote is loaded as the connection NAME@FINGERPRINT. Its children are named
// START:NAME, where START tells the negotiator when to initiate them, as one of the constants of
// dataplane.

// longestName is the longest name of a connection or child in vici's protocol, in bytes, less what
// we add.
const longestName = 255 - 17

// cutRemote returns the name and the fingerprint of a dataplane.IKERemote that is loaded as a
// connection, and false for another connection.
func cutRemote(conn string) (name, fingerprint string, ok bool) {
	at := strings.LastIndexByte(conn, '@')
	if at < 0 {
		return "", "", false
	}
	return conn[:at], conn[at+1:], true
}

// Remotes returns the loaded dataplane.IKERemotes among some connections, as they were observed.
func (i *Instance) Remotes(conns map[string]Connection) (out []dataplane.IKERemote) {
	salt, _ := os.ReadFile(i.saltFile()) // without it, all are loaded again
	for conn := range conns {
		if name, fingerprint, ok := cutRemote(conn); ok {
			out = append(out, dataplane.IKERemote{Name: name, Seen: fingerprint, Salt: salt})
		}
	}
	return out
}

func (i *Instance) saltFile() string { return filepath.Join(i.dir, "salt") }

// salt returns the salt of the fingerprints, which is in a file as long as the daemon runs.
func (i *Instance) salt() ([]byte, error) {
	salt, err := os.ReadFile(i.saltFile())
	if err == nil && len(salt) >= 16 {
		return salt, nil
	}
	salt = make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return salt, os.WriteFile(i.saltFile(), salt, 0o600)
}

// LoadRemote loads a connection, in place of the connection of the same name, whose security
// associations are ended: their addresses may be those of the new ones. Packets of tunnels enter
// and leave through the XFRM interface ifID, unless that is 0. Keys of certificates stay in the
// memory of the daemon until it ends: others may use them.
func (i *Instance) LoadRemote(r dataplane.IKERemote, ifID, mark uint32, userspace bool) error {
	if len(r.Name) > longestName {
		return fmt.Errorf("the name has %d bytes: at most %d are possible", len(r.Name), longestName)
	}
	salt, err := i.salt()
	if err != nil {
		return err
	}
	name := r.Name + "@" + r.Fingerprint(salt)
	conn, err := remoteConnection(r, ifID, mark, userspace)
	if err != nil {
		return err
	}
	if err := i.UnloadRemote(r.Name, name); err != nil {
		return err
	}
	err = i.talk(func(v *vici.Session) error {
		for n, key := range r.Keys {
			if _, err := request(v, "load-key", map[string]any{"type": "any", "data": string(key)}); err != nil {
				return dataplane.SecretRefused(fmt.Sprintf("charon refuses key %d", n+1)) // the answer may quote it
			}
		}
		if len(r.PSK) > 0 {
			owners := []string{} // any identity
			if !r.Anybody() {
				owners = []string{r.RemoteID} // see Load
			}
			secret := map[string]any{"id": name, "type": "IKE", "data": string(r.PSK), "owners": owners}
			if _, err := request(v, "load-shared", secret); err != nil {
				return dataplane.SecretRefused("charon refuses the pre-shared key")
			}
		}
		for _, p := range r.Pools {
			pool, err := section(map[string]any{"addrs": p.String()})
			if err != nil {
				return err
			}
			if _, err := request(v, "load-pool", map[string]any{p.String(): pool}); err != nil {
				return err
			}
		}
		_, err := request(v, "load-conn", map[string]any{name: conn})
		return err
	})
	if err == nil {
		i.retryNow()
	}
	return err
}

// UnloadRemote unloads the connections that a dataplane.IKERemote was loaded as, except one, and
// ends their security associations.
func (i *Instance) UnloadRemote(name, except string) error {
	if _, ok := i.Running(); !ok {
		return nil
	}
	return i.talk(func(v *vici.Session) error {
		names, err := request(v, "get-conns", nil) // list-conns, which describes them all, takes many times as long
		if err != nil {
			return err
		}
		for _, conn := range list(names, "conns") {
			if n, _, ok := cutRemote(conn); !ok || n != name || conn == except {
				continue
			}
			_, errConn := request(v, "unload-conn", map[string]any{"name": conn})
			_, _ = request(v, "unload-shared", map[string]any{"id": conn}) // it may have none
			// The other end is told, but its answer is not waited for. There may be nothing to end.
			_, _ = request(v, "terminate", map[string]any{"ike": conn, "force": "yes", "timeout": "-1"})
			err = errors.Join(err, errConn)
		}
		return err
	})
}

// remoteConnection returns the argument of vici's load-conn.
func remoteConnection(r dataplane.IKERemote, ifID, mark uint32, userspace bool) (*vici.Message, error) {
	children := map[string]any{}
	for _, c := range r.Children {
		if userspace && c.Start == dataplane.StartTraffic {
			c.Start = dataplane.StartNow // it has no policies that wait for packets
		}
		child, err := section(childSettings(r, c, ifID, mark, userspace))
		if err != nil {
			return nil, err
		}
		children[c.Start+":"+c.Name] = child
	}
	all, err := section(children)
	if err != nil {
		return nil, err
	}
	local := map[string]any{"auth": "psk"}
	remote := map[string]any{"auth": "psk"}
	if len(r.Certificates) > 0 {
		local = map[string]any{"auth": "pubkey", "certs": r.Certificates}
		remote = map[string]any{"auth": "pubkey", "cacerts": r.Authorities}
	}
	if r.LocalID != "" {
		local["id"] = r.LocalID
	}
	if r.RemoteID != "" {
		remote["id"] = r.RemoteID
	}
	settings := map[string]any{
		"version":      "2",
		"remote_addrs": []string{"%any"},
		"proposals":    r.IKE,
		"dpd_delay":    seconds(r.DPDDelay),
		"rekey_time": seconds(
			r.IKELifetime),
		"rand_time":   seconds(r.IKELifetime / 20),
		"over_time":   seconds(r.IKELifetime/4 + time.Minute),
		"mobike":      "no",
		"unique":      "replace",
		"keyingtries": "1",
		"send_cert":   "always",
		"children":    all,
	}
	if r.Gateway != "" {
		settings["remote_addrs"] = []string{r.Gateway}
	}
	if len(r.VIPs) > 0 {
		settings["vips"] = r.VIPs
	}
	var pools []string
	for _, p := range r.Pools {
		pools = append(pools, p.String())
	}
	if pools != nil {
		settings["pools"] = pools
	}
	for name, end := range map[string]map[string]any{"local": local, "remote": remote} {
		if settings[name], err = section(end); err != nil {
			return nil, err
		}
	}
	return section(settings)
}

func childSettings(r dataplane.IKERemote, c dataplane.IKEChild, ifID, mark uint32, userspace bool) map[string]any {
	settings := map[string]any{
		"mode":          c.Mode,
		"local_ts":      dataplane.Selectors(c.LocalTS),
		"remote_ts":     dataplane.Selectors(c.RemoteTS),
		"esp_proposals": c.ESP,
		"rekey_packets": strconv.Itoa(rekeyPackets),
		"rekey_time":    seconds(r.ESPLifetime),
		"rand_time":     seconds(r.ESPLifetime / 20),
		"life_time":     seconds(r.ESPLifetime*5/4 + time.Minute),
		"start_action":  "none",
		"dpd_action":    "clear",
		"close_action":  "none",
	}
	switch c.Start {
	case dataplane.StartTraffic:
		settings["start_action"] = "trap"
		settings["dpd_action"] = "trap"
		settings["close_action"] = "trap"
	case dataplane.StartNow:
		settings["dpd_action"] = "restart" // at once; the negotiator tries again if this fails
	}
	if ifID != 0 && c.Mode == dataplane.TunnelMode {
		id := strconv.FormatUint(uint64(ifID), 10)
		settings["if_id_in"] = id
		settings["if_id_out"] = id
	}
	if mark != 0 && !userspace {
		settings["set_mark_out"] = fmt.Sprintf("%#x/%#x", mark, mark)
	}
	return settings
}

// judgeRemote returns the children of a connection that are to be initiated, and whether all that
// this end initiates are up. n.mu is held.
func (n *negotiator) judgeRemote(name string, c Connection, sas []SA, now time.Time) (begin []initiation, up bool) {
	up = true
	for _, child := range c.Children {
		of := initiation{name, child}
		switch start, _, _ := strings.Cut(child, ":"); {
		case Current(sas, child):
			n.markUp(of, now)
			delete(n.problems, name)
		case initiates(name, child):
			up = false
			if n.due(of, start, anyConnecting(sas), now) {
				begin = append(begin, of)
			}
		}
	}
	return begin, up
}

// RemoteStates returns what the loaded dataplane.IKERemotes do. They and their children are sorted
// by name.
func (i *Instance) RemoteStates() ([]dataplane.RemoteState, error) {
	if _, ok := i.Running(); !ok {
		return nil, nil
	}
	conns, sas, err := i.Tunnels()
	if err != nil {
		return nil, err
	}
	var out []dataplane.RemoteState
	for conn, c := range conns {
		name, _, ok := cutRemote(conn)
		if !ok {
			continue
		}
		problem := i.Problem(conn)
		if c.Certificates && problem == WrongKey {
			problem = WrongCert
		}
		st := dataplane.RemoteState{Name: name, Message: string(problem)}
		for _, sa := range sas[conn] {
			if st.State == "" || sa.State == "ESTABLISHED" {
				st.State = sa.State
				st.Local = sa.Local
				st.Remote = sa.Remote
				st.LocalID = sa.LocalID
				st.RemoteID = sa.RemoteID
				st.Age = sa.Age
			}
			st.Virtual, st.Leases = append(st.Virtual, sa.LocalVIPs...), append(st.Leases, sa.RemoteVIPs...)
		}
		for _, child := range c.Children {
			st.Children = append(st.Children, childState(child, sas[conn]))
		}
		slices.SortFunc(st.Children, func(a, b dataplane.ChildState) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b dataplane.RemoteState) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func childState(child string, sas []SA) dataplane.ChildState {
	_, name, _ := strings.Cut(child, ":")
	st := dataplane.ChildState{Name: name, Connecting: anyConnecting(sas)}
	for _, sa := range sas {
		for _, c := range sa.Children {
			if c.Name != child || !c.Up {
				continue
			}
			if !st.Up || c.Age < st.Age {
				st.Age = c.Age
			}
			st.Up = true
			st.Connecting = false
			st.In, st.Out = st.In+c.In, st.Out+c.Out
			st.LocalTS, st.RemoteTS = append(st.LocalTS, c.LocalTS...), append(st.RemoteTS, c.RemoteTS...)
		}
	}
	return st
}

//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
)

// tunnels are the connections that charon has loaded, and the policies that keep what
// belongs in them from leaving in clear.
//
// A changed connection is loaded in place of the old one, and that is all: security
// associations that were made under the old settings carry the traffic until the keeper
// has made new ones. So neither a new key nor new settings interrupt anything, and those
// that the other end does not accept do not either. ("unique = replace" would have charon
// end the old ones before it knows whether the new ones have a child. With "no" it does
// that only if the other end says that it has nothing, as it does after a restart:
// INITIAL_CONTACT, RFC 7296, section 2.4.)
type tunnels struct{ *Host }

func (s tunnels) list() (out []dataplane.Object, err error) {
	if !s.charon.owner {
		return nil, nil
	}
	if err := withXFRM(func(x xfrm) (err error) { out, err = x.blocks(); return err }); err != nil {
		return nil, err
	}
	if _, ok := s.charon.running(); !ok {
		return out, nil
	}
	conns, err := s.charon.conns()
	if err != nil {
		return out, nil // daemons reports one that does not answer, and has it started anew
	}
	for name, c := range conns {
		out = append(out, dataplane.Tunnel{Name: name, Seen: c.child})
	}
	return out, s.charon.sweep(conns)
}

func (s tunnels) put(_, want dataplane.Object) error {
	if b, ok := want.(dataplane.IPsecBlock); ok {
		return withXFRM(func(x xfrm) error { return x.block(b) })
	}
	t := want.(dataplane.Tunnel)
	if t.PSK == (dataplane.Secret{}) {
		return fmt.Errorf("adding tunnel %s: it has no key", t.Name)
	}
	conn, err := connection(t)
	if err != nil {
		return fmt.Errorf("adding tunnel %s: %w", t.Name, err)
	}
	err = s.charon.talk(func(v *vici.Session) error {
		// Raw bytes; whoever is neither of the two has another key.
		secret := map[string]any{"id": t.Name, "type": "IKE", "data": string(t.PSK[:]), "owners": []string{t.LocalID, t.RemoteID}}
		if _, err := request(v, "load-shared", secret); err != nil {
			return errors.New("load-shared: charon refuses the key") // what it says may quote it
		}
		_, err := request(v, "load-conn", map[string]any{t.Name: conn})
		return err
	})
	if err != nil {
		return fmt.Errorf("adding tunnel %s: %w", t.Name, err)
	}
	s.charon.retryNow()
	return nil
}

func (s tunnels) del(old dataplane.Object) error {
	if b, ok := old.(dataplane.IPsecBlock); ok {
		return withXFRM(func(x xfrm) error { return x.unblock(b) })
	}
	name := old.Key().Name
	if _, ok := s.charon.running(); !ok {
		return nil
	}
	err := s.charon.talk(func(v *vici.Session) error {
		_, errConn := request(v, "unload-conn", map[string]any{"name": name})
		_, errKey := request(v, "unload-shared", map[string]any{"id": name})
		// The other end is told, but not waited for. There may be nothing to end.
		_, _ = request(v, "terminate", map[string]any{"ike": name, "force": "yes", "timeout": "-1"})
		failed := errors.Join(errConn, errKey)
		if failed == nil {
			return nil
		}
		conns, err := s.charon.conns()
		if _, still := conns[name]; !still {
			return err // it was gone already
		}
		return failed
	})
	if err != nil {
		return fmt.Errorf("removing tunnel %s: %w", name, err)
	}
	return nil
}

// rekeyPackets renews the keys of a child long before its 32-bit sequence numbers run
// out (RFC 4303, section 2.2): at full speed that may be sooner than in an hour.
const rekeyPackets = 1 << 31

// connection is a tunnel as vici's load-conn wants it.
func connection(t dataplane.Tunnel) (*vici.Message, error) {
	if t.Initiative == "" || strings.Contains(string(t.Initiative), "-") {
		return nil, fmt.Errorf("%q is no initiative", t.Initiative)
	}
	settings := map[string]any{
		"mode": t.Mode, "local_ts": t.Selectors(t.LocalTS), "remote_ts": t.Selectors(t.RemoteTS),
		"esp_proposals": strings.Split(t.ESP, ","), "rekey_packets": strconv.Itoa(rekeyPackets),
		"rekey_time": seconds(renewal(t, t.ESPLifetime)), "rand_time": seconds(t.ESPLifetime / 20), "life_time": seconds(t.ESPLifetime*5/4 + time.Minute),
		"reqid": strconv.FormatUint(uint64(t.ReqID), 10), "start_action": "none", "dpd_action": "clear", "close_action": "none",
	}
	if t.Mode == dataplane.TunnelMode && ipsecEngine().Name == dataplane.EngineKernel {
		settings["if_id_in"], settings["if_id_out"] = strconv.Itoa(dataplane.IPsecIfID), strconv.Itoa(dataplane.IPsecIfID)
	}
	child, err := section(settings)
	if err != nil {
		return nil, err
	}
	children, err := section(map[string]any{t.Fingerprint(): child})
	if err != nil {
		return nil, err
	}
	local, err := section(map[string]any{"auth": "psk", "id": t.LocalID})
	if err != nil {
		return nil, err
	}
	remote, err := section(map[string]any{"auth": "psk", "id": t.RemoteID})
	if err != nil {
		return nil, err
	}
	return section(map[string]any{
		"version": "2", "local_addrs": []string{t.Local.String()}, "remote_addrs": t.RemoteAddrs(),
		"local_port": strconv.Itoa(t.LocalPort), "remote_port": strconv.Itoa(t.RemotePort),
		"proposals": strings.Split(t.IKE, ","), "dpd_delay": seconds(t.DPDDelay),
		"rekey_time": seconds(renewal(t, t.IKELifetime)), "rand_time": seconds(t.IKELifetime / 20), "over_time": seconds(t.IKELifetime/4 + time.Minute),
		"encap": yesNo(t.Encap), "mobike": "no", "unique": "no", "local": local, "remote": remote, "children": children,
	})
}

// renewal is when an end renews keys, at the latest; up to a twentieth of the lifetime
// before, charon chooses at random. The end that does not begin waits a tenth longer:
// keys that both renew at once are renewed twice.
func renewal(t dataplane.Tunnel, life time.Duration) time.Duration {
	if t.Initiative == dataplane.InitiateFirst {
		return life
	}
	return life + life/10
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

//go:build linux

package strongswan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
)

// Load loads a tunnel, in place of the tunnel of the same name. With an ifID other than 0,
// packets enter and leave it through the XFRM interface of that number.
//
// Security associations that were made under the old settings carry the traffic until new
// ones have been negotiated. So neither a new key nor new settings interrupt anything, and
// neither do settings that the other end does not accept. ("unique = replace" would have
// the daemon end the old ones before it knows whether the new ones have a child. With "no"
// it does that only if the other end reports that it has nothing, as it does after a
// restart: INITIAL_CONTACT, RFC 7296, section 2.4.)
func (i *Instance) Load(t dataplane.Tunnel, ifID uint32) error {
	conn, err := connection(t, ifID)
	if err != nil {
		return err
	}
	err = i.talk(func(v *vici.Session) error {
		// Raw bytes. The daemon tries all keys that have the own or the other identity as an owner.
		// So the own one is not an owner: otherwise, an end that knows one key could claim the
		// identity of the other end of any tunnel.
		secret := map[string]any{"id": t.Name, "type": "IKE", "data": string(t.PSK[:]), "owners": []string{t.RemoteID}}
		if _, err := request(v, "load-shared", secret); err != nil {
			return errors.New("load-shared: charon refuses the key") // the answer may quote it
		}
		_, err := request(v, "load-conn", map[string]any{t.Name: conn})
		return err
	})
	if err == nil {
		i.retryNow()
	}
	return err
}

// Unload unloads a tunnel and ends its security associations. It is no error if the tunnel
// is not loaded, or no daemon runs.
func (i *Instance) Unload(name string) error {
	if _, ok := i.Running(); !ok {
		return nil
	}
	return i.talk(func(v *vici.Session) error {
		_, errConn := request(v, "unload-conn", map[string]any{"name": name})
		_, errKey := request(v, "unload-shared", map[string]any{"id": name})
		// The other end is told, but its answer is not waited for. There may be nothing to end.
		_, _ = request(v, "terminate", map[string]any{"ike": name, "force": "yes", "timeout": "-1"})
		failed := errors.Join(errConn, errKey)
		if failed == nil {
			return nil
		}
		conns, err := i.Connections()
		if _, still := conns[name]; !still {
			return err // it was gone already
		}
		return failed
	})
}

// rekeyPackets renews the keys of a child long before its 32-bit sequence numbers run
// out (RFC 4303, section 2.2): at full speed that may be sooner than in an hour.
const rekeyPackets = 1 << 31

// connection returns a tunnel as an argument of vici's load-conn.
func connection(t dataplane.Tunnel, ifID uint32) (*vici.Message, error) {
	if t.Initiative == "" || strings.Contains(string(t.Initiative), "-") {
		return nil, fmt.Errorf("%q is no initiative", t.Initiative)
	}
	settings := map[string]any{
		"mode":          t.Mode,
		"local_ts":      t.Selectors(t.LocalTS),
		"remote_ts":     t.Selectors(t.RemoteTS),
		"esp_proposals": strings.Split(t.ESP, ","),
		"rekey_packets": strconv.Itoa(rekeyPackets),
		"rekey_time": seconds(
			renewal(t, t.ESPLifetime)),
		"rand_time":    seconds(t.ESPLifetime / 20),
		"life_time":    seconds(t.ESPLifetime*5/4 + time.Minute),
		"reqid":        strconv.FormatUint(uint64(t.ReqID), 10),
		"start_action": "none",
		"dpd_action":   "clear",
		"close_action": "none",
	}
	if ifID != 0 {
		id := strconv.FormatUint(uint64(ifID), 10)
		settings["if_id_in"] = id
		settings["if_id_out"] = id
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
		"version":      "2",
		"local_addrs":  []string{t.Local.String()},
		"remote_addrs": t.RemoteAddrs(),
		"local_port":   strconv.Itoa(t.LocalPort),
		"remote_port":  strconv.Itoa(t.RemotePort),
		"proposals":    strings.Split(t.IKE, ","),
		"dpd_delay":    seconds(t.DPDDelay),
		"rekey_time": seconds(
			renewal(t, t.IKELifetime)),
		"rand_time": seconds(t.IKELifetime / 20),
		"over_time": seconds(t.IKELifetime/4 + time.Minute),
		"encap":     yesNo(t.Encap),
		"mobike":    "no",
		"unique":    "no",
		"local":     local,
		"remote":    remote,
		"children":  children,
	})
}

// renewal returns the age at which an end renews keys at the latest; the daemon chooses a
// random time up to a twentieth of the lifetime before. The end that does not initiate
// waits a tenth longer: keys that both ends renew at once are renewed twice.
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

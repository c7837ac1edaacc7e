package dataplane

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"subctl/internal/secret"
)

// IKERemote is an IKEv2 connection that a person has configured, with one or several children: to
// one other end, or with any number of ends that connect to this one. Unlike a Tunnel it may have
// certificates, and virtual addresses.
//
// A daemon does not return the secrets that it was given, so a loaded connection is compared with a
// plan by a fingerprint.
type IKERemote struct {
	Name    string
	Gateway string // address or DNS name of the other end; "" if others connect to this end
	// IKE identity, in strongSwan's notation; "" for the address, or the subject of the first
	// certificate
	LocalID  string
	RemoteID string // "" for any
	// PSK authenticates both ends, unless there are Certificates.
	PSK secret.Bytes
	// Certificates are this end's in DER, that of the first of Keys (PKCS #8) first. The other end
	// needs one by one of the Authorities.
	Certificates []string
	Keys         []secret.Bytes
	Authorities  []string
	IKE          []string // proposals, as in swanctl.conf
	// virtual addresses that this end requests, 0.0.0.0 for any; what it gets is added to the
	// IPsecInterface
	VIPs        []string
	Pools       []Pool // addresses that the other ends can request
	IKELifetime time.Duration
	ESPLifetime time.Duration
	DPDDelay    time.Duration // the silence after which the other end is asked for a sign of life
	Children    []IKEChild
	Seen        string // the fingerprint of a connection that was observed, and empty in a plan
	Salt        []byte // of Seen
}

// IKEChild is a pair of ESP security associations of an IKERemote.
type IKEChild struct {
	Name     string
	Mode     string         // TunnelMode, TransportMode
	LocalTS  []netip.Prefix // traffic selectors; empty for the address, or virtual address, of the end
	RemoteTS []netip.Prefix
	ESP      []string // proposals
	Start    string   // when this end initiates it: one of the constants below
}

// When an end initiates an IKEChild.
const (
	StartNow     = "start" // at once, and again whenever it is down
	StartNever   = "add"   // only the other end does
	StartTraffic = "route" // with the first packet; at once if the kernel has no ESP
)

// Pool is a range of addresses.
type Pool struct{ First, Last netip.Addr }

// String returns the first and the last address.
func (p Pool) String() string { return p.First.String() + "-" + p.Last.String() }

// Key implements Object.
func (r IKERemote) Key() Key { return Key{KindTunnel, "remote " + r.Name} }

// Needs implements Object.
func (IKERemote) Needs() []Key { return []Key{daemonKey} }

// Equal implements Object.
func (r IKERemote) Equal(o Object) bool {
	other, ok := o.(IKERemote)
	if !ok || r.Name != other.Name {
		return false
	}
	if r.Seen != "" {
		r, other = other, r
	}
	if r.Seen != "" {
		return r.Seen == other.Seen
	}
	fingerprint := r.Fingerprint(other.Salt)
	return other.Seen == fingerprint || other.Seen == "" && other.Fingerprint(other.Salt) == fingerprint
}

// Fingerprint returns 16 hexadecimal digits of a hash of everything that is planned, also the
// secrets. People choose short keys: only with a random salt that nobody else knows the hash does
// not help to guess them.
func (r IKERemote) Fingerprint(salt []byte) string {
	h := hmac.New(sha256.New, salt)
	add := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	add([]byte(r.String()))
	add(r.PSK)
	for _, k := range r.Keys {
		add(k)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Selectors returns traffic selectors in the notation of swanctl.conf.
func Selectors(nets []netip.Prefix) []string {
	if len(nets) == 0 {
		return []string{"dynamic"}
	}
	var out []string
	for _, n := range nets {
		out = append(out, n.String())
	}
	return out
}

// String implements Object.
func (r IKERemote) String() string {
	if r.Seen != "" {
		return fmt.Sprintf("swanctl --load-conns # %s, with the fingerprint %s", r.Name, r.Seen)
	}
	var b strings.Builder
	line := func(depth int, key, value string) {
		fmt.Fprintf(&b, "%s%s = %s\n", strings.Repeat("  ", depth), key, value)
	}
	join := func(s []string) string { return strings.Join(s, ", ") }
	fmt.Fprintf(&b, "swanctl --load-all # with this in swanctl.conf:\nconnections.%q {\n", r.Name)
	gateway := r.Gateway
	if gateway == "" {
		gateway = "%any"
	}
	line(1, "remote_addrs", gateway)
	line(1, "proposals", join(r.IKE))
	line(1, "rekey_time", r.IKELifetime.String())
	line(1, "dpd_delay", r.DPDDelay.String())
	if len(r.VIPs) > 0 {
		line(1, "vips", join(r.VIPs))
	}
	for _, p := range r.Pools {
		line(1, "pools.addrs", p.String())
	}
	line(1, "local.id", r.LocalID)
	line(1, "remote.id", r.RemoteID)
	for _, c := range r.Certificates {
		line(1, "local.certs", "SHA-256 "+digest(c))
	}
	for _, c := range r.Authorities {
		line(1, "remote.cacerts", "SHA-256 "+digest(c))
	}
	for _, c := range r.Children {
		fmt.Fprintf(&b, "  children.%q {\n", c.Name)
		line(2, "mode", c.Mode)
		line(2, "local_ts", join(Selectors(c.LocalTS)))
		line(2, "remote_ts", join(Selectors(c.RemoteTS)))
		line(2, "esp_proposals", join(c.ESP))
		line(2, "rekey_time", r.ESPLifetime.String())
		line(2, "start_action", c.Start)
		b.WriteString("  }\n")
	}
	b.WriteString("}")
	if len(r.PSK) > 0 {
		fmt.Fprintf(&b, "\nsecrets.ike.secret = %v", r.PSK)
	}
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "\nsecrets.private = %v", k)
	}
	return b.String()
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// Anybody reports whether the other end may have any identity, or any of a pattern such as
// *.example.org. Anyone who knows the PSK can then claim each of these identities.
func (r IKERemote) Anybody() bool {
	return r.RemoteID == "" || strings.HasPrefix(r.RemoteID, "%any") || strings.Contains(r.RemoteID, "*")
}

// SecretRefused is the error of a daemon that does not accept a key, without the key: which one.
type SecretRefused string

// Error implements error.
func (s SecretRefused) Error() string { return string(s) }

// Remoter is a Target that reports on the IKERemotes that it holds.
type Remoter interface {
	// RemoteStates returns what they do, sorted by name.
	RemoteStates() ([]RemoteState, error)
}

// RemoteState is the state of an IKERemote.
type RemoteState struct {
	Name     string // of the IKERemote
	State    string // of the newest IKE security association: CONNECTING, ESTABLISHED …; "" if there is none
	Local    string // address
	Remote   string
	LocalID  string
	RemoteID string
	Age      time.Duration // since it is established
	Virtual  []string      // this end's virtual addresses
	Leases   []string      // the virtual addresses of other ends
	Children []ChildState
	Message  string // what keeps it from coming up, if that is known
}

// ChildState is the state of an IKEChild; of several other ends, all together.
type ChildState struct {
	Name       string
	Up         bool
	Connecting bool
	Age        time.Duration // of the newest keys
	In, Out    uint64        // bytes
	LocalTS    []string      // the selectors that were negotiated
	RemoteTS   []string
}

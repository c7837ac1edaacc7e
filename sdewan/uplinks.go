package sdewan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"subctl/internal/prefix"
)

// UplinksAnnotation is on the pods of a CNF: which of their networks are uplinks, and how they are
// tracked, as JSON of type map[string]Uplink, by the name of the network. CNFs on OpenWrt ignore
// it.
const UplinksAnnotation = "sdewan.subctl.io/uplinks"

// Uplink is a network of a CNF that leads to the Internet. Times are in seconds; unset numbers are
// those of mwan3 (DefaultUplink).
//
// Without TrackIPs, an uplink is online while its device is up. With them, the CNF pings each of
// them every Interval, from the address and through the device of the uplink, and a round has
// succeeded if at least Reliability of them answer one of Count packets within Timeout. After Down
// failed rounds in a row the uplink is offline, after Up succeeded ones online again; after one, if
// its device has come up since.
type Uplink struct {
	// next hop of the default route; without it, the annotation NetworksAnnotation has it
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	TrackIPs    []netip.Addr `json:"trackIPs,omitempty"`
	Interval    int          `json:"interval,omitempty"`
	Timeout     int          `json:"timeout,omitempty"`
	Count       int          `json:"count,omitempty"`
	Reliability int          `json:"reliability,omitempty"`
	Up          int          `json:"up,omitempty"`
	Down        int          `json:"down,omitempty"`
}

// DefaultUplink has the defaults of mwan3 2.10.
var DefaultUplink = Uplink{Interval: 10, Timeout: 4, Count: 1, Reliability: 1, Up: 5, Down: 5}

// MaxUplinkNumber is the largest number of an Uplink, in seconds or rounds.
const MaxUplinkNumber = 3600

// Bounds of the annotation.
const (
	MaxTrackIPs      = 16      // each is pinged by itself
	maxAnnotation    = 1 << 18 // bytes: the limit of Kubernetes for all annotations of an object
	MaxUplinkEntries = 60      // networks, as mwan3's marks
)

// ParseUplinks reads the annotation UplinksAnnotation, with defaults for what is unset. An empty
// text is no uplinks. It returns all mistakes at once.
func ParseUplinks(text []byte) (map[string]Uplink, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if len(text) > maxAnnotation {
		return nil, fmt.Errorf("annotation %s: %d bytes are too long: use at most %d", UplinksAnnotation, len(text),
			maxAnnotation)
	}
	var entries map[string]json.RawMessage
	if err := decode(text, &entries); err != nil {
		return nil, fmt.Errorf(
			`annotation %s: %w: it must be JSON such as {"wan1": {"gateway": "198.51.100.1", "trackIPs": ["192.0.2.80"], "interval": 5}}`,
			UplinksAnnotation, err)
	}
	out := make(map[string]Uplink, len(entries))
	var errs []error
	if len(entries) > MaxUplinkEntries {
		errs = append(
			errs,
			fmt.Errorf("annotation %s: %d uplinks are too many: use at most %d", UplinksAnnotation, len(entries),
				MaxUplinkEntries),
		)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		var u Uplink
		err := decode(entries[name], &u)
		if err != nil {
			err = fmt.Errorf(
				`%w: it must be JSON such as {"gateway": "198.51.100.1", "trackIPs": ["192.0.2.80"], "interval": 5}`,
				err)
		} else {
			err = u.check()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: uplink %.100q: %w", UplinksAnnotation, name, err))
		}
		out[name] = u.withDefaults()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// decode reads a JSON value without unknown fields, and without text after it.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return untyped(err)
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("there is text after the object")
	}
	return nil
}

// untyped returns an error of encoding/json without the types of Go.
func untyped(err error) error {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return fmt.Errorf("%s has the wrong type, %s", cmp.Or(mistyped.Field, "the value"), mistyped.Value)
	}
	return err
}

func (u Uplink) check() error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int
	}{
		{"interval", u.Interval},
		{"timeout", u.Timeout},
		{"count", u.Count},
		{"reliability", u.Reliability},
		{"up", u.Up},
		{"down", u.Down},
	} {
		if n.value < 0 || n.value > MaxUplinkNumber {
			errs = append(errs, fmt.Errorf("%s %d must be from 1 to %d", n.name, n.value, MaxUplinkNumber))
		}
	}
	if u.Gateway.IsValid() && !Unicast(u.Gateway) {
		errs = append(errs, fmt.Errorf("gateway %s must be the IPv4 address of a router", u.Gateway))
	}
	if len(u.TrackIPs) > MaxTrackIPs {
		errs = append(errs, fmt.Errorf("%d trackIPs are too many: use at most %d", len(u.TrackIPs), MaxTrackIPs))
	}
	for _, ip := range u.TrackIPs {
		if !Unicast(ip) {
			errs = append(errs, fmt.Errorf("trackIPs: %s must be the IPv4 address of a host", ip))
		}
	}
	if n := len(u.TrackIPs); n > 0 && u.Reliability > n {
		errs = append(errs, fmt.Errorf("reliability %d must not exceed the number of trackIPs, %d", u.Reliability, n))
	}
	return errors.Join(errs...)
}

func (u Uplink) withDefaults() Uplink {
	for _, n := range []struct {
		value    *int
		standard int
	}{
		{&u.Interval, DefaultUplink.Interval},
		{&u.Timeout, DefaultUplink.Timeout},
		{&u.Count, DefaultUplink.Count},
		{&u.Reliability, DefaultUplink.Reliability},
		{&u.Up, DefaultUplink.Up},
		{&u.Down, DefaultUplink.Down},
	} {
		if *n.value == 0 {
			*n.value = n.standard
		}
	}
	return u
}

// Period returns the time between two rounds of pings.
func (u Uplink) Period() time.Duration { return time.Duration(u.Interval) * time.Second }

// notUnicast are the networks with addresses that no other host can have: "this network", loopback,
// multicast, and reserved addresses (RFC 6890).
var notUnicast = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// Unicast reports whether another host can have the IPv4 address.
func Unicast(ip netip.Addr) bool { return UnicastNetwork(prefix.Host(ip)) }

// UnicastNetwork reports whether Unicast is true for all addresses of a network.
func UnicastNetwork(p netip.Prefix) bool {
	return p.Addr().Is4() && !prefix.Overlaps(notUnicast, p)
}

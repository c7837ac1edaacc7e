// Package ipsec connects gateways with IPsec. Driver uses tunnels (ESP in tunnel mode,
// RFC 4303), Combined uses VXLAN inside IPsec in transport mode. Each gateway runs its own
// strongSwan, which negotiates keys with IKEv2 (RFC 7296). The package plans the
// configuration, and does not communicate with strongSwan.
//
// Each pair of clusters has its own pre-shared key, derived from both clusters' keys
// (package keys) and bound to the names of the two gateways, which are their IKE
// identities. Gateways are therefore not identified by their addresses, and may be behind
// NAT.
//
// IKE and encapsulated ESP use one UDP port from the first packet on, the port of NAT
// traversal (RFC 3948): UDP 500 is not needed, and the port never changes.
package ipsec

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// encapKey is a key of backend_config: "yes" if the gateway requires ESP in UDP.
const encapKey = "ipsec-encapsulation"

// Driver implements cable.Driver with tunnel mode.
//
// A cable is one child security association. Its traffic selectors are all networks of
// both ends, and the two addresses at which the gateways probe each other. Upstream uses one
// association for each pair of networks: m times n sets of keys to negotiate and renew, each
// of which can fail alone and leave a cable that works only partly. IPsec itself drops packets
// outside the selectors.
type Driver struct{}

var _ cable.Driver = Driver{}

// Name implements cable.Driver.
func (Driver) Name() string { return cable.IPsec }

// Properties implements cable.Driver. An IPsec policy in the kernel has one destination, so
// MaxGateways is 1: Combined stands in for Driver where a cluster has several gateways.
func (Driver) Properties() cable.Properties {
	return cable.Properties{Encrypts: true, PassesNAT: true, MaxGateways: 1, Engine: cable.ProtocolIPsec}
}

// Options implements cable.Driver.
func (Driver) Options() []cable.Option {
	return []cable.Option{
		optPort, optDebug, optServer, optIKE, optESP, optIKELife, optESPLife, optDPD, optEncap, cable.OptionMTU,
	}
}

// Lacks implements cable.Driver.
func (Driver) Lacks(l cable.Local) error {
	if err := l.LacksEngine(cable.ProtocolIPsec); err != nil {
		return err
	}
	if l.Keys != nil && len(l.Keys.Private.Bytes()) == 0 {
		return errors.New("this cluster has no cluster key, which IPsec cables require: run subctl join again")
	}
	return nil
}

// Advertise implements cable.Driver.
func (Driver) Advertise(l cable.Local) (map[string]string, error) {
	config := map[string]string{submarinerv1.BackendUDPPort: strconv.Itoa(port(l))}
	if l.IPsec.Name != dataplane.EngineKernel || l.Settings[cable.IPsec].Text(optEncap) == "yes" {
		config[encapKey] = "yes"
	}
	if prefersServer(l) {
		config[submarinerv1.BackendPreferredServer] = "true"
	}
	return config, nil
}

// names matches the names that strongSwan accepts as IKE identities of the type FQDN, and
// does not interpret as another type, such as an address, a distinguished name or a
// wildcard.
var names = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]{0,199}$`)

// Refuses implements cable.Driver.
func (Driver) Refuses(local cable.Local, peer cable.Peer) error {
	switch {
	case !names.MatchString(peer.Name):
		return fmt.Errorf(
			"its cable name %.80q is not a valid IKE identity: it must have up to 200 letters, digits, dots and dashes, and begin with a letter",
			peer.Name)
	case peer.Name == local.Name:
		return fmt.Errorf("cluster %s announces this gateway's own cable name %s", peer.Cluster, peer.Name)
	}
	if err := local.RefusesKeys(peer, keys.IPsecPSK, "key for an IPsec cable to it"); err != nil {
		return err
	}
	_, err := peer.Port(submarinerv1.BackendUDPPort, dataplane.IPsecPort)
	return err
}

// Device implements cable.Driver.
func (Driver) Device(cable.Config) string { return dataplane.IPsecDevice }

// Overhead implements cable.Driver.
func (Driver) Overhead(l cable.Local, p cable.Peer) int {
	path := cmp.Or(p.MTU, l.MTU)
	most := overhead(path, p.Config.Text(optESP), encapsulated(l, p))
	if l.IPsec.Name != dataplane.EngineKernel {
		return max(most, path-userspaceMTU)
	}
	return most
}

// userspaceMTU is the size of strongSwan's buffer for packets from its TUN device, in bytes.
// It would truncate a longer packet (TUN_DEFAULT_MTU in its kernel_libipsec_plugin.c, and
// read_packet in tun_device.c).
const userspaceMTU = 1400

// Plan implements cable.Driver.
func (d Driver) Plan(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w, err := base(local, peers)
	if err != nil || len(peers) == 0 {
		return w, err
	}
	own := address(local.Gateway)
	dev := dataplane.IPsecInterface{Name: dataplane.IPsecDevice, Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1}}
	for _, p := range peers {
		dev.MTU = max(dev.MTU, cable.Cable{Peer: p, Driver: d}.MTU(local)) // routes have the MTU of narrower paths
	}
	shared := append(
		[]dataplane.Object{dev, dataplane.Addr{Dev: dev.Name, Prefix: netip.PrefixFrom(own, 8)}},
		d.inside(local)...)
	objs := slices.Clone(shared)
	for _, p := range peers {
		ip := address(p.Gateway)
		t, err := tunnel(local, p)
		if err != nil {
			return w, fmt.Errorf("planning ipsec cable to %s: %w", p.Name, err)
		}
		t.Name = p.Name
		t.LocalID = local.Name
		t.RemoteID = p.Name
		t.Mode = dataplane.TunnelMode
		t.LocalTS = selectors(local.Subnets, own)
		t.RemoteTS = selectors(p.Subnets, ip)
		t.ReqID = cable.NexthopID(dataplane.IPsecNexthopID, ip)
		hop := dataplane.Nexthop{ID: t.ReqID, Dev: dev.Name}
		objs = append(objs, t, hop)
		w.Links = append(w.Links, cable.Link{
			Hop: t.ReqID, Device: dev.Name, IP: ip, From: own, State: t.Name, StateDevice: dev.Name,
			Needs: append(slices.Clone(shared), t, hop),
		})
	}
	return w, w.State.Add(objs...)
}

// inside returns the addresses that userspace ESP requires: the node must have an address in
// each local network of the tunnel. If it has none in a network, it gets the first address,
// which belongs to no pod and no Service.
func (Driver) inside(l cable.Local) (out []dataplane.Object) {
	if l.IPsec.Name == dataplane.EngineKernel {
		return nil
	}
	for _, n := range l.Subnets {
		if !n.Contains(l.PodIP) {
			out = append(out, dataplane.Addr{Dev: dataplane.IPsecDevice, Prefix: prefix.Host(n.Addr())})
		}
	}
	return out
}

// base returns the plan of the IKE daemon, which both drivers share, and the packets that the
// gateway must accept.
func base(local cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w := cable.Wiring{State: dataplane.State{}}
	if len(peers) == 0 {
		return w, nil
	}
	w.Listens = []cable.Listen{{Proto: "udp", Port: port(local)}}
	if slices.ContainsFunc(peers, func(p cable.Peer) bool { return !encapsulated(local, p) }) {
		w.Listens = append(w.Listens, cable.Listen{Proto: "esp"})
	}
	return w, w.State.Add(dataplane.IKEDaemon{Port: port(local), Debug: local.Settings[cable.IPsec].Bool(optDebug)})
}

// tunnel returns the common part of the two drivers' tunnels.
func tunnel(local cable.Local, p cable.Peer) (dataplane.Tunnel, error) {
	psk, pskErr := local.Keys.Pair(p.Cluster, p.PublicKey, keys.IPsecPSK)
	to, portErr := p.Port(submarinerv1.BackendUDPPort, dataplane.IPsecPort)
	t := dataplane.Tunnel{
		Local:       local.PrivateIP,
		LocalPort:   port(local),
		RemotePort:  to,
		PSK:         psk,
		IKE:         tidy(p.Config.Text(optIKE)),
		ESP:         tidy(p.Config.Text(optESP)),
		IKELifetime: p.Config.Duration(optIKELife),
		ESPLifetime: p.Config.Duration(optESPLife),
		DPDDelay:    max(p.Config.Duration(optDPD), time.Second),
		Encap:       p.Config.Text(optEncap) == "yes",
		Initiative:  initiative(local, p),
	}
	if !p.InboundOnly {
		t.Remote = p.Address
	}
	return t, errors.Join(pskErr, portErr)
}

// initiative returns which end starts the negotiation. Both ends compute the same result: the
// end that the other cannot reach; or the end that is not the preferred server, if exactly one
// is; or the end behind NAT, if exactly one is; or the end with the lower cable name. The
// other end starts too if it receives nothing for some seconds.
func initiative(local cable.Local, p cable.Peer) dataplane.Initiative {
	own := prefersServer(local)
	other := p.Gateway.Config[submarinerv1.BackendPreferredServer] == "true"
	switch {
	case p.InboundOnly:
		return dataplane.InitiateNever
	case own && !other:
		return dataplane.InitiateSecond
	case other && !own:
		return dataplane.InitiateFirst
	case local.NAT != p.NAT && local.NAT, local.NAT == p.NAT && local.Name < p.Name:
		return dataplane.InitiateFirst
	}
	return dataplane.InitiateSecond
}

// prefersServer reports whether this cluster's gateways wait for others to start.
func prefersServer(l cable.Local) bool { return l.Settings[cable.IPsec].Bool(optServer) }

// encapsulated reports whether ESP is encapsulated in UDP: if either end requires it, or if
// there may be NAT on the path.
func encapsulated(l cable.Local, p cable.Peer) bool {
	return l.IPsec.Name != dataplane.EngineKernel || p.Config.Text(optEncap) == "yes" ||
		p.Gateway.Config[encapKey] == "yes" ||
		l.NAT ||
		p.NAT ||
		p.NATed
}

// selectors returns the networks and the gateway's address on the device, sorted.
func selectors(nets []netip.Prefix, own netip.Addr) []netip.Prefix {
	out := append(slices.Clone(nets), prefix.Host(own))
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// address returns a gateway's own address inside IPsec.
func address(g cable.Gateway) netip.Addr { return g.VTEP(dataplane.IPsecNet) }

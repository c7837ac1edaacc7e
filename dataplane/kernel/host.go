//go:build linux

// Package kernel applies a dataplane.State to Linux. It is the only package that
// speaks netlink or runs programs: iptables, nft, and the two that stand in for what a kernel
// lacks or negotiate for it, wireguard-go and strongSwan's charon.
//
// It holds no policy, and it keeps nothing in memory that the kernel can be asked for: our objects
// are recognized by protocol number, or by name and kind (see dataplane.Owner), so an agent that is
// restarted adopts what it finds. Observe only reads. Where several kernel objects share the key of
// one of ours, or an object has settings that a dataplane object cannot express, it is reported
// with its settings blank: it equals no plan, and so is repaired or removed by the next Sync.
//
// Each kind of object has a store: set.go, ruleset.go, chain.go, daemon.go, remains.go, link.go
// (and a file for each type of device), addr.go, peer.go, tunnel.go, neigh.go, nexthop.go (also
// groups), route.go and rule.go.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// store reads and writes the objects of one or two kinds.
type store interface {
	// list returns the objects that we own. It changes nothing.
	list() ([]dataplane.Object, error)
	// put creates want, or puts it in place of old, which is nil if there is none. It
	// must succeed even if the kernel differs from old by now.
	put(old, want dataplane.Object) error
	// del removes old. It is no error if old does not exist.
	del(old dataplane.Object) error
}

// Host is the kernel of one network namespace, restricted to the objects of one owner.
//
// Its netlink sockets belong to the namespace in which New was called, whichever
// thread uses them later. Programs such as iptables run in the namespace of the thread
// that starts them: call Observe and Apply from a thread in the same namespace (in
// tests: inside nstest's Do). Called from another namespace, they return an error.
type Host struct {
	owner dataplane.Owner
	nl    *vnl.Handle
	conn  *netlink.Conn
	// tracking is a socket of its own for Flows: a request waits until the one before it on the
	// same socket has ended, and to read all conntrack entries can take seconds.
	tracking *netlink.Conn
	ipt      *iptables
	charon   *strongswan.Instance
	xfrm     xfrm
	stores   []store // each once, in order of kinds
	byKind   map[dataplane.Kind]store

	rulesetsSeen map[dataplane.Nftable]nftSeen           // as they were read last
	wanted       map[dataplane.Nftable]dataplane.Ruleset // as they were put last
	left         map[dataplane.Nftable]rulesetLeft       // what is still to do after they have changed

	// endMatching is deleteFlows, except in tests.
	endMatching func(match func(original, reply dataplane.Flow) bool) error
	// tablesOfIPv6 is the function with this name, except in tests.
	tablesOfIPv6 func() bool

	setbacks  map[dataplane.Key]setback
	conflicts map[dataplane.Kind][]string // see Conflicts, by the kind of objects that was listed
	ownsIPsec bool                        // whether the tunnels of the node are the owner's
	seen      sight                       // of this Observe

	mu      sync.Mutex
	wgctrl  *wgctrl.Client // nil until it is needed
	indexOf map[string]int // devices by name and by index, since the last Observe
	nameOf  map[int]string
	// restarts is the result of Restarts. served are the WireGuard devices that were seen
	// with a process behind them which we have not ended since.
	restarts map[string]int
	served   map[string]bool
	// exchanged holds the states derived from the counters of WireGuard peers, by public key.
	exchanged map[string]exchanged
}

// sight holds the data that one Observe reads for several stores, each once.
type sight struct {
	ipsec     *ipsecView                 // nil until it is read
	links     []*device                  // see Host.ownDevices; nil until they are read
	devices   map[string]int             // see Host.devices; nil until they are read
	wireGuard map[string]*wgtypes.Device // by name; a device without WireGuard behind it is nil
}

var _ dataplane.Target = (*Host)(nil)

// New returns the kernel of the calling thread's network namespace, restricted to the
// objects of owner. It changes nothing.
func New(owner dataplane.Owner) (*Host, error) {
	c, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	h, err := vnl.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("opening netlink socket: %w", err)
	}
	ipt, err := newIPTables(c)
	if err != nil {
		c.Close()
		h.Close()
		return nil, err
	}
	x, err := openXFRM()
	if err != nil {
		c.Close()
		h.Close()
		return nil, err
	}
	tracking, err := netlink.DialNetfilter()
	if err != nil {
		c.Close()
		h.Close()
		x.close()
		return nil, err
	}
	host := &Host{
		owner:        owner,
		nl:           h,
		conn:         c,
		tracking:     tracking,
		ipt:          ipt,
		charon:       newCharon(ipt.netns),
		xfrm:         x,
		ownsIPsec:    owner.OwnsDevice(dataplane.IPsecDevice) || owner.OwnsDevice(dataplane.CNFTunnelDevice),
		restarts:     map[string]int{},
		served:       map[string]bool{},
		setbacks:     map[dataplane.Key]setback{},
		conflicts:    map[dataplane.Kind][]string{},
		rulesetsSeen: map[dataplane.Nftable]nftSeen{},
		wanted:       map[dataplane.Nftable]dataplane.Ruleset{},
		left:         map[dataplane.Nftable]rulesetLeft{},
	}
	host.endMatching = host.deleteFlows
	host.tablesOfIPv6 = tablesOfIPv6
	host.forget()
	nh := nexthops{host}
	host.stores = []store{
		sets{host},
		rulesets{host},
		chains{host},
		daemons{host},
		remains{host},
		links{host},
		addrs{host},
		peers{host},
		tunnels{host},
		neighs{host},
		nh,
		routes{host},
		rules{host},
	}
	host.byKind = map[dataplane.Kind]store{
		dataplane.KindSet:     sets{host},
		dataplane.KindChain:   chains{host},
		dataplane.KindRuleset: rulesets{host},
		dataplane.KindDaemon:  daemons{host},
		dataplane.KindRemains: remains{host},
		dataplane.KindArrival: rules{host},
		dataplane.KindLink:    links{host},
		dataplane.KindAddr:    addrs{host},
		dataplane.KindPeer:    peers{host},
		dataplane.KindTunnel:  tunnels{host},
		dataplane.KindNeigh:   neighs{host},
		dataplane.KindNexthop: nh,
		dataplane.KindGroup:   nh,
		dataplane.KindRoute:   routes{host},
		dataplane.KindRule:    rules{host},
	}
	return host, nil
}

// Close closes the netlink sockets. The objects in the kernel stay, and so do the programs
// that stand in for the kernel.
func (h *Host) Close() {
	h.charon.Rest()
	h.xfrm.close()
	h.nl.Close()
	h.conn.Close()
	h.tracking.Close()
	if h.wgctrl != nil {
		_ = h.wgctrl.Close() // it has nothing to lose
	}
}

// Observe implements dataplane.Target.
func (h *Host) Observe(ctx context.Context, kinds ...dataplane.Kind) (dataplane.State, error) {
	h.forget()
	var all []dataplane.Object
	var errs []error
	for _, st := range h.stores {
		has := func(k dataplane.Kind) bool { return h.byKind[k] == st }
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, has) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		objs, err := st.list()
		all = append(all, objs...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err // from part of the objects Sync would create objects that exist
	}
	if len(kinds) > 0 { // a store may have other kinds, too
		all = slices.DeleteFunc(all, func(o dataplane.Object) bool { return !slices.Contains(kinds, o.Key().Kind) })
	}
	return dataplane.Of(all...)
}

// Apply implements dataplane.Target.
func (h *Host) Apply(ctx context.Context, op dataplane.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if op.New != nil {
		return h.try(op.Old, op.New)
	}
	return h.byKind[op.Old.Key().Kind].del(op.Old)
}

// forget drops what is known of devices and IPsec: other programs may have changed it.
func (h *Host) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.indexOf = map[string]int{}
	h.nameOf = map[int]string{}
	h.seen = sight{wireGuard: map[string]*wgtypes.Device{}}
}

func (h *Host) learn(name string, index int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.indexOf[name] = index
	h.nameOf[index] = name
}

func (h *Host) unlearn(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.nameOf, h.indexOf[name])
	delete(h.indexOf, name)
}

// index returns the index of the device with a name.
func (h *Host) index(name string) (int, error) {
	h.mu.Lock()
	i, ok := h.indexOf[name]
	h.mu.Unlock()
	if ok {
		return i, nil
	}
	l, err := h.getLink(name, 0)
	if err != nil {
		return 0, fmt.Errorf("finding device %s: %w", name, err)
	}
	return l.index, nil
}

// name returns the name of the device with an index, or "" if there is none.
func (h *Host) name(index int) (string, error) {
	h.mu.Lock()
	n, ok := h.nameOf[index]
	h.mu.Unlock()
	if ok {
		return n, nil
	}
	l, err := h.getLink("", index)
	if err != nil {
		return "", netlink.OrGone(err)
	}
	return l.name, nil
}

// devices returns the indexes of the owner's devices that exist, by name.
func (h *Host) devices() (map[string]int, error) {
	if h.seen.devices != nil {
		return h.seen.devices, nil
	}
	devs, err := h.ownDevices()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, d := range devs {
		out[d.name] = d.index
	}
	h.seen.devices = out
	return out, nil
}

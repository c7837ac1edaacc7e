//go:build linux

// Package kernel applies a dataplane.State to Linux. Only it and its parts speak netlink or run
// programs: iptables, nft, and the two that stand in for what a kernel lacks or negotiate for it,
// wireguard-go and strongSwan's charon.
//
// It holds no policy, and it keeps nothing in memory that the kernel can be asked for: our objects
// are recognized by protocol number, or by name and kind (see dataplane.Owner), so an agent that is
// restarted adopts what it finds. Observe only reads. Where several kernel objects share the key of
// one of ours, or an object has settings that a dataplane object cannot express, it is reported
// with its settings blank: it equals no plan, and so is repaired or removed by the next Sync.
//
// Each part has a package: nft, iptables, route, link, conntrack and ike have what Host puts
// together, by the interface in store; probe has sockets that need no Host; netlink and strongswan
// exchange messages with the kernel and with charon.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/conntrack"
	"subctl/dataplane/kernel/ike"
	"subctl/dataplane/kernel/iptables"
	"subctl/dataplane/kernel/link"
	"subctl/dataplane/kernel/netlink"
	"subctl/dataplane/kernel/nft"
	"subctl/dataplane/kernel/route"
	"subctl/dataplane/kernel/store"
	"subctl/dataplane/kernel/strongswan"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
	// charon is shared by devices and ipsec.
	charon *strongswan.Instance

	devices  *link.Devices
	routing  *route.Routing
	iptables *iptables.Tables
	nft      *nft.Tables
	flows    *conntrack.Table
	ipsec    *ike.IPsec

	stores   []store.Store
	byKind   map[dataplane.Kind]store.Store
	setbacks map[dataplane.Key]setback
}

var _ dataplane.Target = (*Host)(nil)

// New returns the kernel of the calling thread's network namespace, restricted to the
// objects of owner. It changes nothing.
func New(owner dataplane.Owner) (_ *Host, err error) {
	h := &Host{owner: owner, byKind: map[dataplane.Kind]store.Store{}, setbacks: map[dataplane.Key]setback{}}
	defer func() {
		if err != nil {
			h.Close()
		}
	}()
	ns, err := netlink.Namespace()
	if err != nil {
		return nil, err
	}
	if h.conn, err = netlink.Dial(); err != nil {
		return nil, err
	}
	if h.nl, err = vnl.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("opening netlink socket: %w", err)
	}
	if h.flows, err = conntrack.New(h.conn); err != nil {
		return nil, err
	}
	home := netlink.Home(ns)
	h.charon = ike.Charon(home)
	config := link.Config{Owner: owner, Conn: h.conn, Handle: h.nl, Home: home, Charon: h.charon}
	h.devices = link.New(config)
	if h.ipsec, err = ike.New(config, h.devices); err != nil {
		return nil, err
	}
	h.routing = route.New(owner, h.conn, h.devices)
	h.iptables = iptables.New(owner, h.conn, home)
	h.nft = nft.New(owner, h.conn, home, h.flows)
	h.stores = slices.Concat(h.iptables.Stores(), h.nft.Stores(), h.ipsec.Stores(), h.devices.Stores(),
		h.routing.Stores())
	for _, s := range h.stores {
		for _, k := range s.Kinds() {
			h.byKind[k] = s
		}
	}
	return h, nil
}

// Close closes the netlink sockets. The objects in the kernel stay, and so do the programs
// that stand in for the kernel.
func (h *Host) Close() {
	if h.charon != nil {
		h.charon.Rest()
	}
	if h.ipsec != nil {
		h.ipsec.Close()
	}
	if h.devices != nil {
		h.devices.Close()
	}
	if h.flows != nil {
		h.flows.Close()
	}
	if h.nl != nil {
		h.nl.Close()
	}
	if h.conn != nil {
		h.conn.Close()
	}
}

// Observe implements dataplane.Target.
func (h *Host) Observe(ctx context.Context, kinds ...dataplane.Kind) (dataplane.State, error) {
	h.devices.Forget() // other programs may have changed them
	h.ipsec.Forget()
	var all []dataplane.Object
	var errs []error
	for _, st := range h.stores {
		has := func(k dataplane.Kind) bool { return slices.Contains(st.Kinds(), k) }
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, has) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		objs, err := st.List()
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
	return h.byKind[op.Old.Key().Kind].Delete(op.Old)
}

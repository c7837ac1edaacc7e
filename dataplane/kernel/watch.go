//go:build linux

package kernel

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// The intervals at which Watch looks for changes that the kernel does not report. A dead
// charon interrupts cables. A set that somebody has emptied is a rare accident, and counting
// the members of all sets would be half of what an idle agent does.
const (
	pollCharon = 250 * time.Millisecond // the process of our strongSwan
	pollSets   = time.Second            // the number of members of our sets
)

// Watch sends a signal when something has changed, in the calling thread's network
// namespace, that an owner's Observe or ReadFacts would report. However many changes there
// are, it sends at most one signal in each interval quiet, and sends it that long after the
// first change. The channel is closed when ctx is done.
//
// An agent's own changes are signalled as well. One more Sync follows, which finds nothing
// to do, and so there is no further signal. Changes that other programs make to their own
// devices, tables, chains and next hops are ignored.
//
// A signal is only a reason to look, and without a signal not everything need be well. The
// kernel does not report changes of the old (legacy) iptables, and members of a set that
// are replaced by as many others are not noticed. So observe from time to time, too.
func Watch(ctx context.Context, quiet time.Duration) (<-chan struct{}, error) {
	conn, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	ns, err := netlink.Namespace()
	if err != nil {
		conn.Close()
		return nil, err
	}
	charon := newCharon(ns)
	f, err := newFilter(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	route, err := netlink.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		conn.Close()
		return nil, err
	}
	subscriptions := []*netlink.Subscription{route}
	dirty := make(chan struct{}, 1)
	notify := func() { signal(dirty) }
	go route.Receive(f.route, notify)
	// A kernel without nftables has no such family.
	if nft, err := netlink.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES); err == nil {
		subscriptions = append(subscriptions, nft)
		go nft.Receive(nftNews, notify)
	}
	go poll(ctx, pollCharon, notify, func() (string, error) {
		pid, _ := charon.Process() // 0 if there is none
		return strconv.Itoa(pid), nil
	})
	go func() {
		defer conn.Close()
		poll(ctx, pollSets, notify, func() (string, error) { return setCounts(conn) })
		for _, s := range subscriptions {
			s.Close()
		}
	}()
	out := make(chan struct{}, 1)
	go coalesce(ctx, quiet, dirty, out)
	return out, nil
}

// coalesce forwards signals, at most one in each interval quiet.
func coalesce(ctx context.Context, quiet time.Duration, in <-chan struct{}, out chan<- struct{}) {
	defer close(out)
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-in:
			if due == nil {
				due = time.After(quiet)
			}
		case <-due:
			due = nil
			signal(out)
		}
	}
}

// signal sends a signal, unless one is waiting already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// poll calls notify whenever look returns another text than before, until ctx is done.
func poll(ctx context.Context, interval time.Duration, notify func(), look func() (string, error)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, _ := look()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now, err := look(); err == nil && now != last {
				last = now
				notify()
			}
		}
	}
}

// setCounts returns the names of all sets of ours, and how many members each has.
func setCounts(c *netlink.Conn) (string, error) {
	var b strings.Builder
	for _, o := range dataplane.Owners() {
		s := sets{&Host{owner: o, conn: c}}
		names, err := s.names()
		if err != nil {
			return "", err
		}
		for _, name := range names {
			n, err := s.count(name)
			if err != nil && !netlink.Gone(err) {
				return "", err
			}
			fmt.Fprintln(&b, name, n)
		}
	}
	return b.String(), nil
}

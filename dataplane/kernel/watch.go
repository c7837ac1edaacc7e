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

// The intervals at which Watch looks for changes that the kernel does not report. A charon
// that dies interrupts cables. That somebody empties a set, or starts a charon in place of
// the agent, is rare, and an idle agent should have little to do.
const (
	pollCharon = 250 * time.Millisecond // the process of our strongSwan, while it runs
	pollRare   = time.Second            // the number of members of our sets; a strongSwan that does not run
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
	go poll(ctx, notify, func() (string, time.Duration, error) {
		pid, _ := charon.Process()
		if pid == 0 {
			return "", pollRare, nil
		}
		return strconv.Itoa(pid), pollCharon, nil
	})
	go func() {
		defer conn.Close()
		poll(ctx, notify, func() (string, time.Duration, error) {
			counts, err := setCounts(conn)
			return counts, pollRare, err
		})
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

// poll calls notify whenever look returns another text than before, until ctx is done. look
// also returns the time until the next look.
func poll(ctx context.Context, notify func(), look func() (string, time.Duration, error)) {
	last, wait, _ := look()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now, wait, err := look()
		if err == nil && now != last {
			last = now
			notify()
		}
		timer.Reset(wait)
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
